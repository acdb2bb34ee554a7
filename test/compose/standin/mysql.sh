#!/bin/sh
# What docker-compose.yml uses of the official image's entrypoint: it sets the data directory up, runs the scripts for it, and starts the server.
set -eu
case ${1:-} in mysqld) shift ;; -*) ;; *) exec "$@" ;; esac
server() {
  export LD_LIBRARY_PATH=/opt/mysql/bin:/opt/mysql/lib:/opt/mysql/lib/private
  exec /opt/mysql/bin/mysqld --no-defaults --user=root --basedir=/opt/mysql --lc-messages-dir=/opt/mysql/share --datadir=/var/lib/mysql "$@"
}
client() { "$1" --no-defaults --user=root --socket=/tmp/init.sock "$2"; }
if [ ! -d /var/lib/mysql/mysql ]; then
  (server --initialize-insecure)
  server "$@" --skip-networking --mysqlx=OFF --socket=/tmp/init.sock &
  until client mysqladmin ping 2>/dev/null; do sleep 0.2; done
  for script in /docker-entrypoint-initdb.d/*.sql; do
    client mysql --execute="source $script"
  done
  kill -TERM $!
  wait
fi
server "$@" --mysqlx=OFF --socket=/tmp/mysql.sock
