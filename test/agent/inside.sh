#!/bin/bash
# inside.sh COMMAND…: makes fresh namespaces look like a node of their own, then
# runs a command as a child, because the first process must wait for orphans.
set -euo pipefail
mount -t tmpfs tmpfs /run        # sockets, pids, and the names of network namespaces
mkdir -p /run/netns /run/cilium /run/lock
mount -t sysfs sysfs /sys        # of this network namespace, and without the machine's cgroups
mount -t bpf bpf /sys/fs/bpf
mount -t tmpfs tmpfs /var/lib    # nothing of the machine's own cilium, etcd or CNI
# The agent sets what its network has, but not what the whole kernel has.
mount --bind /proc/sys/kernel /proc/sys/kernel
mount -o remount,bind,ro /proc/sys/kernel
ip link set lo up
AGENT_TEST_INSIDE=yes "$@"
