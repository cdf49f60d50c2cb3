#!/bin/bash
# run.sh TEST_BINARY [FLAGS]: runs the tests in separate namespaces. Requires root.
set -euo pipefail
binary=$(realpath "$1")
shift
cd "$(dirname "$0")" # the tests read manifests of deploy/
# Without configuration_path whereabouts looks below the three directories. Most cases wait.
exec ../cluster/run.sh "/etc/cni /etc/kubernetes /host" "$binary" -test.timeout 0 -test.parallel 8 "$@"
