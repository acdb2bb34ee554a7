#!/usr/bin/env bash
# Installs the .deb where systemd runs, starts the service by its unit, and follows a message through it: also after kill -9, a stop and an
# upgrade. engine.sh runs it; MySQL and Kafka are those of docker-compose.yml.
#
#   package.sh FILE.deb
set -euo pipefail
deb=$(realpath "$1")
cd "$(dirname "$0")/../.."
. test/compose/lib.sh

finish_with() {
  docker exec machine journalctl --no-pager --lines=40 --unit=canal-outbox >&2 || true
}

compose up --detach --wait mysql kafka
compose up --detach topic-kafka
await "the topic is made" stopped topic-kafka

docker run --detach --name machine --cap-add SYS_ADMIN --security-opt seccomp=unconfined --security-opt apparmor=unconfined \
  --cgroupns=private --volume /sys/fs/cgroup:/sys/fs/cgroup --env container=docker --tmpfs /run --tmpfs /tmp --network "${project}_default" machine >/dev/null
inside() { docker exec machine "$@"; }
booted() { inside systemctl is-system-running | grep -E 'running|degraded'; }
await "systemd has started" booted

docker cp "$deb" machine:/canal-outbox.deb
inside dpkg --install /canal-outbox.deb
if inside systemctl is-active --quiet canal-outbox; then
  echo "package.sh: the service runs before it is configured" >&2
  exit 1
fi
query "CREATE USER 'service'@'%' IDENTIFIED BY 'a secret'" root mysql
query "GRANT REPLICATION SLAVE, REPLICATION CLIENT, SESSION_VARIABLES_ADMIN ON *.* TO 'service'@'%'" root mysql
query "GRANT SELECT, INSERT, UPDATE, DELETE ON shop.* TO 'service'@'%'" root mysql
sed '/^admin:/d' deploy/compose/kafka.yaml | docker exec --interactive machine sh -c 'cat >/etc/canal-outbox/canal-outbox.yaml'
inside canal-outbox migrate --config /etc/canal-outbox/canal-outbox.yaml
inside sed -i 's/user: relay/user: service/' /etc/canal-outbox/canal-outbox.yaml
inside sh -c 'umask 077; echo "a secret" >/etc/canal-outbox/mysql-password'
inside systemctl enable --now canal-outbox # returns when the relay says that it is ready

message() { # message NUMBER: a row, and that it is published
  query "INSERT INTO t_local_message_kafka (biz_type, biz_key, topic, tag, message_body) VALUES ('check', 'c-$1', 'orders', 'created', JSON_OBJECT('check', $1))"
  await "message $1 is SENT" sent t_local_message_kafka "$1"
}
message 1
inside systemctl kill --signal=KILL canal-outbox
again() { [ "$(inside systemctl show --property=NRestarts --value canal-outbox)" -ge 1 ] && inside systemctl is-active canal-outbox; }
await "the service runs again after kill -9" again
message 2
inside sh -c 'echo "# edited" >>/etc/canal-outbox/canal-outbox.yaml'
inside dpkg --install /canal-outbox.deb # an upgrade restarts what runs, and leaves the configuration
inside systemctl is-active --quiet canal-outbox
inside grep --quiet '# edited' /etc/canal-outbox/canal-outbox.yaml
message 3
inside systemctl stop canal-outbox
[ "$(inside systemctl show --property=Result --value canal-outbox)" = success ]
await "3 messages in the topic" kafka 3
echo "package.sh: $(basename "$deb") works under $(inside systemctl --version | head -1)" >&2
