#!/bin/bash
# run.sh TEST_BINARY [FLAGS]: runs the tests in mount, network and PID namespaces of their own. They
# end with the tests, and with them every process and mount. Requires root.
set -euo pipefail
binary=$(realpath "$1")
shift
# The test is a child of the shell, because the first process of a PID namespace must reap orphans.
exec unshare --mount --net --pid --fork --kill-child --mount-proc -- bash -c '
  set -euo pipefail
  ip link set lo up
  ip addr add 192.0.2.1/32 dev lo # of the API server, which refuses a loopback address
  NETWORK_TEST_NAMESPACED=yes "$@"
  exit' run "$binary" -test.v -test.timeout 30m "$@"
