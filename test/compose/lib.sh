# Sourced by the checks: the sample of docker-compose.yml under a name of its own, which is removed at the end.
project=canal-outbox-test
patience=600 # seconds for each step
work=$(mktemp -d)
compose() { docker compose --project-name $project --profile kafka --profile watch "$@"; }

await() { # await WHAT COMMAND...: until the command succeeds
  local what=$1 end=$((SECONDS + patience))
  shift
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $end ] || { echo "timed out: $what" >&2; return 1; }
    sleep 1
  done
  echo "$what: after $SECONDS s" >&2
}

finish() {
  local status=$?
  trap - EXIT
  if [ $status != 0 ]; then
    compose ps --all >&2
    compose logs --no-color --tail=30 >&2
    [ "$(type -t finish_with)" != function ] || finish_with
  fi
  [ "$(type -t finish_with)" != function ] || docker rm --force machine >/dev/null 2>&1 || true
  compose down --volumes --remove-orphans --timeout 5 >/dev/null 2>&1 || true
  rm -rf "$work"
  exit $status
}
trap finish EXIT

healthy() { [ "$(docker inspect --format '{{.State.Health.Status}}' "$(compose ps --quiet "$1")")" = healthy ]; }
stopped() { [ "$(docker inspect --format '{{.State.Status}} {{.State.ExitCode}}' "$(compose ps --all --quiet "$1")")" = "exited 0" ]; }
query() { # query SQL [USER [SCHEMA]]
  compose exec -T mysql mysql --host=127.0.0.1 --user="${2:-shop}" --skip-column-names --batch --execute="$1" "${3:-shop}"
}
sent() { [ "$(query "SELECT COUNT(*) FROM $1 WHERE biz_type = 'check' AND status = 2")" = "$2" ]; } # sent TABLE ROWS

# kafka ROWS and rocketmq ROWS: so many of the check's messages are in the topic; the numbers of all, with copies, are in $work.
numbers() { grep -o '"check": [0-9]*' | grep -o '[0-9]*' || true; }
kafka() {
  timeout 120 docker compose --project-name $project --profile kafka exec -T kafka /opt/kafka/bin/kafka-console-consumer.sh --bootstrap-server kafka:9092 --topic orders --from-beginning --timeout-ms 15000 2>/dev/null |
    numbers >"$work/kafka" && [ "$(sort -u "$work/kafka" | wc -l)" = "$1" ]
}
rocketmq() { compose logs --no-color consumer | numbers >"$work/rocketmq" && [ "$(sort -u "$work/rocketmq" | wc -l)" = "$1" ]; }
