#!/usr/bin/env bash
# Puts the real servers that the tests run against into a private cache directory and prints nothing but progress.
#
#   install.sh [mysql] [mariadb] [mariadb-11.8] [redis] [kafka] [rocketmq] [browser] [clock] [promtool] [debezium]     (default: mysql mariadb kafka rocketmq)
#
# MySQL is taken from PATH when there is one, else unpacked into a folder of its own with debootstrap, and so is MariaDB 11.8
# for those who ask for it. MariaDB, Redis, Java, the browser and the library that shifts a server's clock come from the
# distribution, the brokers from the Maven registry with the versions pinned below. Every step is skipped when its result is
# already there, so a second run costs nothing.
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

mysql_release() { mysqld --version 2>/dev/null | grep -vi mariadb | grep -oE 'Ver [0-9]+' | cut -d' ' -f2; }

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

install_mysql() {
  [ "$(mysql_release || echo 0)" -ge 8 ] 2>/dev/null && return
  unpack mysql-root sid mysql-server-core,mysql-client-core
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
  command -v java >/dev/null || apt_install default-jre-headless
  command -v mvn >/dev/null || apt_install maven
  echo "resolving the jars of $1" >&2
  rm -rf "$dir.new" && mkdir -p "$dir.new"
  mvn -B -q -f "$here/$1.pom.xml" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$dir.new/jars" >&2
  cp "$here/$1.pom.xml" "$dir.new/pom.xml"
  rm -rf "$dir" && mv "$dir.new" "$dir"
}

# debezium: Debezium Server, for comparison alone (make bench-peers). Later releases need a newer Java than the distribution has.
install_debezium() {
  local dir=$cache/debezium-server
  [ -d "$dir" ] && return
  command -v java >/dev/null || apt_install default-jre-headless
  command -v mvn >/dev/null || apt_install maven
  echo "unpacking Debezium Server (600 megabytes)" >&2
  rm -rf "$dir.new" && mkdir -p "$dir.new"
  mvn -B -q dependency:copy -Dartifact=io.debezium:debezium-server-dist:2.7.3.Final:tar.gz -DoutputDirectory="$dir.new" >&2
  tar -xzf "$dir.new"/debezium-server-dist-*.tar.gz -C "$dir.new" --strip-components=1
  rm "$dir.new"/debezium-server-dist-*.tar.gz
  mv "$dir.new" "$dir"
}

for what in "${@:-mysql mariadb kafka rocketmq}"; do
  for name in $what; do
    case $name in
      mysql) install_mysql ;;
      mariadb) install_mariadb ;;
      mariadb-11.8) unpack mariadb-11.8 trixie mariadb-server-core,mariadb-client-core ;;
      redis) install_redis ;;
      kafka | rocketmq) jars "$name" ;;
      browser) install_browser ;;
      clock) ls /usr/lib/*/faketime/libfaketime.so.1 >/dev/null 2>&1 || apt_install libfaketime ;;
      promtool) install_promtool ;;
      debezium) install_debezium ;;
      *) echo "install.sh: unknown server $name" >&2; exit 2 ;;
    esac
  done
done
