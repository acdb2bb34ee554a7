#!/bin/sh
# mqnamesrv, mqbroker and mqadmin of the official image: the class of each name.
set -eu
case $(basename "$0") in
  mqnamesrv) main=namesrv.NamesrvStartup ;;
  mqbroker) main=broker.BrokerStartup ;;
  mqadmin) main=tools.command.MQAdminStartup ;;
esac
open=
for package in jdk.internal.ref sun.nio.ch java.nio java.lang java.util; do
  open="$open --add-opens=java.base/$package=ALL-UNNAMED"
done
# shellcheck disable=SC2086 # several options each
exec java -XX:TieredStopAtLevel=1 $open ${JAVA_OPT_EXT:-} -cp '/opt/rocketmq/*' "org.apache.rocketmq.$main" "$@"
