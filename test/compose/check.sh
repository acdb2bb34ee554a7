#!/usr/bin/env bash
# Runs docker-compose.yml as a user does: starts everything, commits 1,000 rows for each relay, kills both relays in the middle, and compares
# tables, topics, page and Prometheus. WITHOUT names services whose images cannot be had.
set -euo pipefail
cd "$(dirname "$0")/../.."
. test/compose/lib.sh
rows=1000

services=$(compose config --services)
for without in ${WITHOUT:-}; do services=$(grep -vx "$without" <<<"$services"); done
# shellcheck disable=SC2086 # one word each
compose up --build --detach $services

page() { curl --fail --silent --max-time 5 "http://127.0.0.1:$1/" | grep '<title>'; }
works() { compose exec -T "$1" /usr/bin/canal-outbox status; }
for relay in relay relay-kafka; do
  await "$relay is healthy" healthy "$relay"
  await "the status of $relay says that it works" works "$relay"
done
for port in 9180 9181; do await "the page answers on $port" page $port; done

declare -A restarts
container() { docker inspect --format "$2" "$(compose ps --quiet "$1")"; }
for n in $(seq 0 50 $((rows - 1))); do
  for table in t_local_message t_local_message_kafka; do
    values=$(for i in $(seq "$n" $((n + 49))); do echo "('check', 'c-$i', 'orders', 'created', JSON_OBJECT('check', $i)),"; done)
    query "INSERT INTO $table (biz_type, biz_key, topic, tag, message_body) VALUES ${values%,}"
  done
  if [ "$n" = 500 ]; then
    for relay in relay relay-kafka; do
      restarts[$relay]=$(container $relay '{{.RestartCount}}')
      kill -9 "$(container $relay '{{.State.Pid}}')" # not `docker kill`, after which the daemon leaves a container stopped
    done
  fi
done
restarted() { [ "$(container "$1" '{{.RestartCount}}')" -gt "${restarts[$1]}" ] && healthy "$1"; }
for relay in relay relay-kafka; do await "$relay runs again after kill -9" restarted $relay; done
for table in t_local_message t_local_message_kafka; do await "the rows of $table are SENT" sent $table $rows; done
compose stop producer producer-kafka >/dev/null 2>&1 # Kafka's consumer ends when no message has come for some time
for broker in rocketmq kafka; do
  await "$rows messages in the topic of $broker" $broker $rows
  echo "$broker: $rows messages, $(($(wc -l <"$work/$broker") - rows)) copies after kill -9" >&2
done

scraped() { curl --fail --silent 'http://127.0.0.1:9090/api/v1/query?query=sum(up)' | grep '"2"'; }
ruled() { curl --fail --silent 'http://127.0.0.1:9090/api/v1/rules' | grep '"health":"ok"'; }
await "Prometheus reads both relays" scraped
await "Prometheus evaluates the alerts" ruled
echo "check.sh: docker-compose.yml works" >&2
