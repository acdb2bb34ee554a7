#!/bin/sh
# The commands of the official image: the class of each name. start.sh makes the broker's configuration of the variables KAFKA_*.
set -eu
java() { command java -XX:TieredStopAtLevel=1 -Xmx512m -cp '/opt/kafka/libs/*' "$@"; }
case $(basename "$0") in
  kafka-topics.sh) java org.apache.kafka.tools.TopicCommand "$@"; exit ;;
  kafka-console-consumer.sh) java org.apache.kafka.tools.consumer.ConsoleConsumer "$@"; exit ;;
esac
env | sed -n 's/^KAFKA_//p' | while IFS== read -r name value; do
  echo "$(echo "$name" | tr '[:upper:]_' '[:lower:].')=$value"
done >/tmp/server.properties
echo log.dirs=/tmp/kraft-combined-logs >>/tmp/server.properties
[ -d /tmp/kraft-combined-logs ] || java kafka.tools.StorageTool format -t 5L6g3nShT-eMCtK--X86sw -c /tmp/server.properties
exec java -XX:TieredStopAtLevel=1 -Xmx512m -cp '/opt/kafka/libs/*' kafka.Kafka /tmp/server.properties
