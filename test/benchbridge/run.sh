#!/bin/bash
# run.sh TEST_BINARY [FLAGS]: runs the benchmark in separate namespaces, without privileges.
set -euo pipefail
binary=$1
shift
# Most cases wait.
UNSHARE_FLAGS=--map-root-user exec "$(dirname "$0")/../cluster/run.sh" "" "$binary" -test.timeout 0 -test.parallel 8 "$@"
