#!/usr/bin/env bash
# Runs a command where Podman can make pods also on a machine with cgroups of version 1 and without the controllers of networks: in a mount
# namespace of its own, which ends with the command. Needs root.
set -euo pipefail
cgroups=/sys/fs/cgroup
if [ "${1:-}" = --inside ]; then
  shift
  dir=$(mktemp -d)
  trap 'umount --lazy "$dir" && rmdir "$dir"' EXIT
  mount -t tmpfs tmpfs "$dir"
  for controller in "$cgroups"/*/; do
    mkdir -p "$dir/$(basename "$controller")"
    ! mountpoint --quiet "$controller" || mount --rbind "$controller" "$dir/$(basename "$controller")"
  done
  mkdir -p "$dir"/{net_cls,net_prio,perf_event,hugetlb}
  mount --rbind "$dir" "$cgroups"
  "$@"
  exit
fi
if [ -d $cgroups/memory ] && [ ! -w $cgroups/net_cls ]; then
  unshare --mount --propagation private bash "$0" --inside "$@"
else
  "$@"
fi
