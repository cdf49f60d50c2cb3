#!/bin/bash
# run.sh TEST_BINARY [FLAGS]: runs the tests in separate namespaces. Requires root.
set -euo pipefail
# The plugins write there: their paths are compiled in.
exec "$(dirname "$0")/../cluster/run.sh" "/run /var/log /var/lib/calico" "$(realpath "$1")" -test.timeout 0 "${@:2}"
