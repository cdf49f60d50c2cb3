#!/bin/bash
# run.sh TEST_BINARY [FLAGS]: runs the tests in separate namespaces. Requires root.
set -euo pipefail
binary=$1
shift
# The service account of a pod is below /run.
exec "$(dirname "$0")/../cluster/run.sh" /run "$binary" -test.timeout 20m "$@"
