#!/bin/bash
# run.sh TEST_BINARY [FLAGS]: runs the benchmark in user, network, mount and PID namespaces of their
# own, without privileges. They end with the benchmark, and with them every process.
set -euo pipefail
binary=$(realpath "$1")
shift
# The benchmark is a child of the shell, because the first process of a PID namespace must reap orphans.
exec unshare --map-root-user --mount --net --pid --fork --kill-child --mount-proc -- bash -c '
  set -euo pipefail
  ip link set lo up
  ip addr add 192.0.2.1/32 dev lo # of the API server, which refuses a loopback address
  BENCH_BRIDGE_NAMESPACED=yes "$@"
  exit' run "$binary" -test.v -test.timeout 0 -test.parallel 8 "$@" # most cases wait
