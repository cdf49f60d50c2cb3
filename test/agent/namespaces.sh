#!/bin/bash
# namespaces.sh COMMAND…: sets up new namespaces as a node and runs a command in them.
# The command is a child, because the first process of a PID namespace must reap orphans.
set -euo pipefail
mount -t tmpfs tmpfs /run        # sockets, PID files, names of network namespaces
mkdir -p /run/netns /run/cilium /run/lock
mount -t sysfs sysfs /sys        # of this network namespace, without the cgroups of the host
mount -t bpf bpf /sys/fs/bpf
mount -t tmpfs tmpfs /var/lib    # hides Cilium, etcd and CNI state of the host
# The agent may change sysctls of its network namespace, not those of the kernel.
mount --bind /proc/sys/kernel /proc/sys/kernel
mount -o remount,bind,ro /proc/sys/kernel
ip link set lo up
AGENT_TEST_NAMESPACED=yes "$@"
