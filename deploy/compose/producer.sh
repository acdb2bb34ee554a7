#!/bin/sh
# The sample's application: each second a business transaction that leaves a row in the local message table.
set -eu
insert() {
  mysql --host=mysql --user=shop shop --execute="
    START TRANSACTION;
    INSERT INTO $1 (biz_type, biz_key, topic, tag, message_body)
    VALUES ('order', UUID(), 'orders', 'created', JSON_OBJECT('total', ROUND(RAND() * 100, 2), 'at', NOW(3)));
    COMMIT"
}
while :; do
  for table in "$@"; do
    insert "$table" || echo "the database does not answer yet" >&2
  done
  sleep 1
done
