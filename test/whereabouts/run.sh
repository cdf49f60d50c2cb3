#!/bin/bash
# run.sh TEST_BINARY [FLAGS]: runs the tests in separate namespaces. Requires root.
set -euo pipefail
binary=$1
shift
# Without configuration_path whereabouts looks below the three directories. Most cases wait.
exec "$(dirname "$0")/../cluster/run.sh" "/etc/cni /etc/kubernetes /host" "$binary" -test.timeout 0 -test.parallel 8 "$@"
