#!/bin/bash
# node.sh DAEMON… -- AGENT…: the first process of a second node, in new mount, network and PID
# namespaces, which the test connects. It sets them up as a node, and runs both programs until the
# first of them ends.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
if [ -z "${SECOND_NODE-}" ]; then
  mount --make-rprivate /
  mount -t proc proc /proc
  # BPF programs for sockets are attached at the root of a cgroup namespace.
  mount -t cgroup2 cgroup2 /mnt
  mkdir -p /mnt/node-2
  echo 0 >/mnt/node-2/cgroup.procs
  umount /mnt
  umount -R /sys # the agent refuses a second mount of bpf, even a hidden one
  SECOND_NODE=yes exec unshare --cgroup bash "$here/namespaces.sh" bash "$0" "$@"
fi
until ip link show eth0 >/dev/null 2>&1; do sleep 0.1; done # the test connects it
for address in $NODE_ADDRESSES; do ip addr add "$address" dev eth0; done
ip link set eth0 up
for gateway in $NODE_GATEWAYS; do ip route add default via "$gateway"; done

daemon=()
while [ "$1" != -- ]; do
  daemon+=("$1")
  shift
done
shift
"${daemon[@]}" &
"$@" &
wait -n
