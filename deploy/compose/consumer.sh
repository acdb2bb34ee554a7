#!/bin/sh
# Prints the messages of the topic. The command ends when it has seen what is there, so it is started again for what came meanwhile.
set -eu
from=0
while :; do
  to=$(($(date +%s) - 2))999 # milliseconds; a message of the last second may not be stored yet
  if sh mqadmin consumeMessage -n namesrv:9876 -t orders -s "$from" -e "$to" -c 1000000 >/tmp/seen 2>&1 && grep -q finished /tmp/seen; then
    grep MSGID /tmp/seen || true
    from=$((to + 1))
  fi
  sleep 5
done
