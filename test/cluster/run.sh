#!/bin/bash
# run.sh "DIR…" TEST_BINARY [FLAGS]: runs tests in separate mount, network and PID namespaces, with an
# empty file system over each directory that exists, and with the address of the API server. The
# namespaces end with the tests, and with them every process and mount. Requires root, except with
# UNSHARE_FLAGS=--map-root-user and no directory.
set -euo pipefail
dirs=$1
binary=$(realpath "$2")
shift 2
# The test is a child of the shell, because the first process of a PID namespace must reap orphans.
# shellcheck disable=SC2086 # flags may be several words
exec unshare ${UNSHARE_FLAGS:-} --mount --net --pid --fork --kill-child --mount-proc -- bash -c '
  set -euo pipefail
  ip link set lo up
  ip addr add 192.0.2.1/32 dev lo # of the API server, which refuses a loopback address
  for dir in $1; do
    [ ! -d "$dir" ] || mount -t tmpfs tmpfs "$dir"
  done
  shift
  DELEGATED_IPAM_TEST_NAMESPACED=yes "$@"
  exit' run "$dirs" "$binary" -test.v "$@"
