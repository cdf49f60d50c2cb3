#!/bin/bash
# run.sh TEST_BINARY [FLAGS]: runs the tests in separate namespaces. Requires root.
set -euo pipefail
binary=$1
shift
exec "$(dirname "$0")/../cluster/run.sh" "" "$binary" -test.timeout 30m "$@"
