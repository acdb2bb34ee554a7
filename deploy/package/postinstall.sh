#!/bin/sh
# After an installation or an upgrade. The service is not started: its configuration names no database yet. A running one is started anew.
set -e
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
systemctl try-restart canal-outbox.service
