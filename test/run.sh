#!/usr/bin/env bash
# usage: run.sh quick|all FLAGS...
# Runs go test -json over all packages, as input of gotestsum. Packages without servers run side by side; those whose tests
# start servers run one after the other, so that two cores suffice. "quick" leaves the latter out. The simulation runs without
# the race detector, which would take most of its seeds away.
set -euo pipefail
which=$1; shift
module=github.com/canal-outbox/canal-outbox

quick=() servers=()
while read -r name deps; do
  case "$name" in
    "$module/internal/testkit.test") servers+=("${name%.test}") ;;
    "$module/test/sim.test") ;;
    *.test) case " $deps " in
      *" $module/internal/testkit "*) servers+=("${name%.test}") ;;
      *) quick+=("${name%.test}") ;;
    esac ;;
  esac
done < <(go list -test -f '{{.ImportPath}} {{join .Deps " "}}' ./...)

failed=0
plain=()
for flag in "$@"; do [ "$flag" = -race ] || plain+=("$flag"); done
go test -json "${plain[@]}" "$module/test/sim" || failed=1
go test -json "$@" "${quick[@]}" || failed=1
[ "$which" = quick ] || go test -json -p=1 "$@" "${servers[@]}" || failed=1
exit $failed
