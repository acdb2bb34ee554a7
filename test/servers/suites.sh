#!/usr/bin/env bash
# Runs suites against the servers that TEST_MYSQL and TEST_MARIADB name, and with WRITE=1 the date of each green one into the table of
# docs/servers.md.
#
#   suites.sh parts|layouts|e2e|crash|failover|soak...
#
# docs/servers.md says what each is. SUITE_FLAGS are more flags of go test.
set -euo pipefail
cd "$(dirname "$0")/../.."

run() { CGO_ENABLED=0 go test -count=1 -ldflags=-w -vet=off -timeout=90m ${SUITE_FLAGS:-} "$@"; }

for suite in "$@"; do
  echo "suite $suite on MySQL ${TEST_MYSQL:-8.0} and MariaDB ${TEST_MARIADB:-of the distribution}" >&2
  case $suite in
    parts) run -short -p=2 ./canal ./outbox/... ./lease/... ./inbox ./internal/app ;;
    layouts) run -short -parallel=8 -run 'Layout' ./test/e2e ;;
    e2e) run -parallel=8 ./test/e2e ;;
    crash) run -short ./test/crash ;;
    failover) run -run 'Failover' ./test/crash ./test/e2e ./canal ;;
    soak) SOAK_TIME=${SOAK_TIME:-10m} SOAK_DATABASE=${SOAK_DATABASE:-mysql} run -run Soak ./test/soak ;;
    *) echo "suites.sh: unknown suite $suite" >&2; exit 2 ;;
  esac
  [ "${WRITE:-}" = 1 ] || continue
  WRITE_SUITE=$suite go test -count=1 -run '^TestServersTable$' ./docs
done
