#!/usr/bin/env bash
# Runs a command with a Docker daemon of its own, which lives in a network namespace of its own and reaches no other network: its images are
# stand-ins, built here from the servers that the other tests use (standin/). Everything is removed at the end.
#
#   engine.sh COMMAND...     needs root, Linux on x86_64, and Debian's packages (docker.io, iptables, debootstrap), which it installs
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
cache=${CANAL_OUTBOX_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/canal-outbox}

# inside runs in the namespace: the daemon, the images, the command.
inside() {
  local dir=$1 status=0
  shift
  ip link set lo up
  dockerd --data-root "$dir/data" --exec-root "$dir/exec" --pidfile "$dir/pid" --host "unix://$dir/sock" \
    --exec-opt native.cgroupdriver=cgroupfs --default-ulimit nofile=1024:1024 >"$dir/log" 2>&1 &
  daemon=$!
  trap 'kill $daemon 2>/dev/null; wait $daemon' EXIT
  export DOCKER_HOST=unix://$dir/sock DOCKER_CONFIG=$dir/config DOCKER_BUILDKIT=1
  for _ in $(seq 120); do docker info >/dev/null 2>&1 && break; sleep 0.5; done
  docker info >/dev/null || { tail -5 "$dir/log" >&2; return 1; }
  docker import --change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' "$dir/base.tar" standin >/dev/null
  local name image
  while read -r name image; do
    echo "building the stand-in $image" >&2
    DOCKER_BUILDKIT=0 docker build --quiet --file "$here/standin/$name.Dockerfile" --tag "$image" "$dir/$name" >/dev/null 2>&1 || { echo "engine.sh: $image could not be built" >&2; return 1; }
  done <<-END
	mysql mysql:8.4.6
	rocketmq apache/rocketmq:5.3.3
	kafka apache/kafka:4.1.0
	prometheus prom/prometheus:v3.5.0
	golang golang:1.26.8-bookworm
	systemd machine
	END
  "$@" || status=$?
  docker ps --quiet | xargs --no-run-if-empty docker rm --force >/dev/null
  return "$status"
}

if [ "${1:-}" = --inside ]; then
  shift
  inside "$@"
  exit
fi

[ "$(id -u)" = 0 ] || { echo "engine.sh: a daemon of its own needs root; with a Docker daemon that reaches an image registry run test/compose/check.sh" >&2; exit 1; }
bash "$root/test/servers/install.sh" mysql-8.0 kafka rocketmq docker compose-base
dir=$(mktemp -d "$cache/engine.XXXXXX")
trap 'for _ in $(seq 20); do rm -rf --one-file-system "$dir" 2>/dev/null && break; sleep 0.5; done' EXIT # the daemon's helpers may still end
mkdir -p "$dir"/config/cli-plugins "$dir"/{mysql,rocketmq,kafka,prometheus,golang,systemd}
ln "$cache/docker-compose" "$dir/config/cli-plugins/docker-compose"
tar --create --directory="$cache/compose-base" --exclude=./proc --exclude=./sys --exclude=./var/cache --exclude=./data --file="$dir/base.tar" .
for name in mysql rocketmq kafka; do install -m 0755 "$here/standin/$name.sh" "$dir/$name/"; done
cp -r "$cache/mysql-8.0" "$dir/mysql/mysql"
cp -r "$cache/rocketmq/jars" "$dir/rocketmq/rocketmq"
cp -r "$cache/kafka/jars" "$dir/kafka/kafka"
cp -r "$(go env GOROOT)" "$dir/golang/go"
(cd "$root" && GOFLAGS=-modcacherw GOMODCACHE=$dir/modules go mod download)
mv "$dir/modules/cache/download" "$dir/golang/modules"
rm -rf "$dir/modules"
unshare --net --mount bash "$here/engine.sh" --inside "$dir" "$@"
