#!/usr/bin/env bash
# usage: run.sh quick|all FLAGS...
# Runs go test -json over all packages, as input of gotestsum: first those without servers, then those whose tests start
# servers, two at a time, because they wait more than they work; the long ones come first. "quick" leaves the latter out. The
# programs under test are built once for all packages, as they are released: without the race detector. The simulation runs
# without it too, because it would take most of its seeds away. -short leaves out tests of the test servers themselves.
set -euo pipefail
which=$1; shift
module=github.com/canal-outbox/canal-outbox

quick=() servers=("$module/test/e2e" "$module/test/crash")
while read -r name deps; do
  name=${name%.test}
  case "$name" in
    "$module/test/sim" | "$module/test/e2e" | "$module/test/crash") ;;
    "$module/internal/testkit") servers+=("$name") ;;
    *) case " $deps " in
      *" $module/internal/testkit "*) servers+=("$name") ;;
      *) quick+=("$name") ;;
    esac ;;
  esac
done < <(go list -test -f '{{.ImportPath}} {{join .Deps " "}}' ./... | grep '\.test ')

failed=0
plain=()
for flag in "$@"; do [ "$flag" = -race ] || plain+=("$flag"); done
servers_too=()
[ "$which" = all ] || servers_too=(-skip '^TestTheModelIsTheTable$')
go test -json "${plain[@]}" "${servers_too[@]}" "$module/test/sim" || failed=1
go test -json "$@" "${quick[@]}" || failed=1
if [ "$which" = all ]; then
  TEST_BINARIES=$(mktemp -d)
  export TEST_BINARIES
  trap 'rm -rf "$TEST_BINARIES"' EXIT
  CGO_ENABLED=0 go build -o "$TEST_BINARIES" ./cmd/... >&2
  CGO_ENABLED=0 go build -tags faultpoints -o "$TEST_BINARIES/canal-outbox-faultpoints" ./cmd/canal-outbox >&2
  go test -json -short -p=2 -parallel=5 "$@" "${servers[@]}" || failed=1
fi
exit $failed
