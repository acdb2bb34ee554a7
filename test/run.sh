#!/usr/bin/env bash
# usage: run.sh quick|test|rest FLAGS...
# Runs go test -json over all packages, as input of gotestsum.
#   quick  the packages whose tests start no server
#   test   all packages with -short. The race detector watches the concurrent packages of the flow, whose tests start no server.
#   rest   what "test" leaves out: all packages without -short and with the race detector. The simulation runs without it, because
#          it would take most of its seeds away. UNTIL bounds the time.
# Tests with servers wait more than they compute. So they come first, the longest at the top, and other packages are built and
# tested in the pauses. The programs under test are built once for all packages, as they are released: without cgo and the race
# detector. Tests without the race detector are built without cgo too, so both share their packages.
set -euo pipefail
which=$1; shift
module=github.com/canal-outbox/canal-outbox
raced=" ack fallback pipeline pipeline/dispatch pipeline/keyorder pipeline/recovery pipeline/tracker redelivery retention "

quick=() flow=() servers=(test/e2e test/crash internal/app canal examples/orders examples/demo test/security)
while read -r name deps; do
  name=${name%.test} name=${name#"$module/"}
  case " ${servers[*]} test/sim " in *" $name "*) continue ;; esac
  case " $deps " in
    *" $module/internal/testkit "*) servers+=("$name") ;;
    *) case "$raced" in *" $name "*) flow+=("$name") ;; *) quick+=("$name") ;; esac ;;
  esac
done < <(go list -test -f '{{.ImportPath}} {{join .Deps " "}}' ./... | grep '\.test ')

# The linker leaves out what only a debugger reads, and make lint vets.
run() { go test -json -vet=off -ldflags=-w "$@" || failed=1; }
failed=0
export CGO_ENABLED=0
if [ "$which" = quick ]; then
  run "$@" -skip '^TestTheModelIsTheTable$' "${quick[@]/#/./}" "${flow[@]/#/./}" ./test/sim
  exit $failed
fi

TEST_BINARIES=$(mktemp -d)
export TEST_BINARIES
trap 'rm -rf "$TEST_BINARIES"' EXIT
go build -ldflags=-w -o "$TEST_BINARIES" ./cmd/... ./examples/demo >&2
go build -ldflags=-w -tags faultpoints -o "$TEST_BINARIES/canal-outbox-faultpoints" ./cmd/canal-outbox >&2
if [ "$which" = test ]; then
  run -short -p=3 -parallel=8 "$@" "${servers[@]/#/./}" ./test/sim "${quick[@]/#/./}"
  CGO_ENABLED=1 run -short -race "$@" "${flow[@]/#/./}"
else
  # A part begins only before UNTIL, in seconds since 1970, if that is set. Each day begins with another part.
  parts=(units sim crash servers "e2e 0" "e2e 1" "e2e 2" "e2e 3")
  day=$(date -u +%-j)
  for n in "${!parts[@]}"; do
    part=${parts[(day + n) % ${#parts[@]}]}
    if [ "$(date +%s)" -ge "${UNTIL:-9999999999}" ]; then
      echo "no time is left for the part: $part"
      continue
    fi
    case $part in
      units) CGO_ENABLED=1 run -race "$@" "${quick[@]/#/./}" "${flow[@]/#/./}" ;;
      sim) run "$@" ./test/sim ;;
      crash) CGO_ENABLED=1 run -race -parallel=5 "$@" ./test/crash ;;
      servers)
        others=()
        for name in "${servers[@]}"; do
          case $name in test/e2e|test/crash) ;; *) others+=("./$name") ;; esac
        done
        CGO_ENABLED=1 run -race -p=2 -parallel=5 "$@" "${others[@]}" ;;
      e2e*)
        quarter=$(grep -hoE '^func Test\w+\(\w+ \*testing\.T\)' test/e2e/*_test.go | sed 's/func //; s/(.*//' | awk "NR % 4 == ${part#e2e }" | paste -sd'|')
        CGO_ENABLED=1 run -race -parallel=8 -run "^($quarter)\$" "$@" ./test/e2e ;;
    esac
  done
fi
exit $failed
