#!/bin/sh
# Before a removal, not before an upgrade (Debian: upgrade; Red Hat: 1). State directory and configuration stay.
set -e
case "${1:-}" in upgrade | 1) exit 0 ;; esac
[ -d /run/systemd/system ] || exit 0
systemctl disable --now canal-outbox.service
