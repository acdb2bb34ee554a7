#!/usr/bin/env bash
# Runs docker-compose.yml as a user does: starts everything, commits 1,000 rows for each relay, kills both relays in the middle, and compares
# tables, topics, page and Prometheus. WITHOUT names services whose images cannot be had.
set -euo pipefail
cd "$(dirname "$0")/../.."
compose() { docker compose --project-name canal-outbox-test --profile kafka --profile watch "$@"; }
patience=600 # seconds for each step
rows=1000

await() { # await WHAT COMMAND...: until the command succeeds
  local what=$1 end=$((SECONDS + patience))
  shift
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $end ] || { echo "check.sh: timed out: $what" >&2; return 1; }
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
  fi
  compose down --volumes --remove-orphans --timeout 5 >/dev/null 2>&1 || true
  exit $status
}
trap finish EXIT

services=$(compose config --services)
for without in ${WITHOUT:-}; do services=$(grep -vx "$without" <<<"$services"); done
# shellcheck disable=SC2086 # one word each
compose up --build --detach $services

healthy() { [ "$(docker inspect --format '{{.State.Health.Status}}' "$(compose ps --quiet "$1")")" = healthy ]; }
page() { curl --fail --silent --max-time 5 "http://127.0.0.1:$1/"; }
works() { compose exec -T "$1" /usr/bin/canal-outbox status; }
query() { compose exec -T mysql mysql --host=127.0.0.1 --user=shop --skip-column-names --batch --execute="$1" shop; }

for relay in relay relay-kafka; do
  await "$relay is healthy" healthy "$relay"
  await "the status of $relay says that it works" works "$relay"
done
for port in 9180 9181; do
  await "the page answers on $port" page $port
  page $port | grep -q '<title>' || { echo "check.sh: no page on $port" >&2; exit 1; }
done

declare -A restarts
pid() { docker inspect --format '{{.State.Pid}}' "$(compose ps --quiet "$1")"; }
for n in $(seq 0 50 $((rows - 1))); do
  for table in t_local_message t_local_message_kafka; do
    values=$(for i in $(seq "$n" $((n + 49))); do echo "('check', 'c-$i', 'orders', 'created', JSON_OBJECT('check', $i)),"; done)
    query "INSERT INTO $table (biz_type, biz_key, topic, tag, message_body) VALUES ${values%,}"
  done
  if [ "$n" = 500 ]; then
    for relay in relay relay-kafka; do
      restarts[$relay]=$(docker inspect --format '{{.RestartCount}}' "$(compose ps --quiet $relay)")
      kill -9 "$(pid $relay)" # not `docker kill`, after which the daemon leaves a container stopped
    done
  fi
done
restarted() { [ "$(docker inspect --format '{{.RestartCount}}' "$(compose ps --quiet "$1")")" -gt "${restarts[$1]}" ] && healthy "$1"; }
for relay in relay relay-kafka; do await "$relay runs again after kill -9" restarted $relay; done

sent() { [ "$(query "SELECT COUNT(*) FROM $1 WHERE biz_type = 'check' AND status = 2")" = $rows ]; }
for table in t_local_message t_local_message_kafka; do await "the rows of $table are SENT" sent $table; done

numbers() { grep -o '"check": [0-9]*' | grep -o '[0-9]*' || true; }
rocketmq() { compose logs --no-color consumer | numbers >"$work/rocketmq" && [ "$(sort -u "$work/rocketmq" | wc -l)" = $rows ]; }
kafka() {
  compose exec -T kafka /opt/kafka/bin/kafka-console-consumer.sh --bootstrap-server kafka:9092 --topic orders --from-beginning --timeout-ms 15000 2>/dev/null |
    numbers >"$work/kafka" && [ "$(sort -u "$work/kafka" | wc -l)" = $rows ]
}
work=$(mktemp -d)
for broker in rocketmq kafka; do
  await "$rows messages in the topic of $broker" $broker
  echo "$broker: $rows messages, $(($(wc -l <"$work/$broker") - rows)) copies after kill -9" >&2
done
rm -r "$work"

scraped() { curl --fail --silent 'http://127.0.0.1:9090/api/v1/query?query=sum(up)' | grep -q '"2"'; }
ruled() { curl --fail --silent 'http://127.0.0.1:9090/api/v1/rules' | grep -q '"health":"ok"'; }
await "Prometheus reads both relays" scraped
await "Prometheus evaluates the alerts" ruled
echo "check.sh: docker-compose.yml works" >&2
