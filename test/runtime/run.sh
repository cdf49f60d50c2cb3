#!/bin/bash
# run.sh TEST_BINARY [FLAGS]: runs the tests in separate mount, network and PID namespaces, with empty
# file systems over the directories of a container runtime. All processes, mounts and interfaces end
# with them, and the cgroups are removed. Requires root.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
for dir in "$RUNTIME_TEST_BIN" "$RUNTIME_TEST_PROGRAMS"; do
  case $dir in /etc/* | /opt/* | /run/* | /var/lib/*)
    echo "$dir: the tests have their own /etc, /opt, /run and /var/lib; expected another directory" >&2
    exit 1
    ;;
  esac
done
export PATH=$RUNTIME_TEST_PROGRAMS:$PATH # containerd runs its shim
export RUNTIME_TEST_CGROUP=delegated-ipam-runtime-test-$$
test_pid=
cleanup() {
  [ -z "$test_pid" ] || kill -KILL "$test_pid" 2>/dev/null || true # its namespaces end with it
  for _ in $(seq 100); do
    left=
    for h in $(findmnt -n -o TARGET -t cgroup,cgroup2); do
      find "$h/$RUNTIME_TEST_CGROUP" -depth -type d -exec rmdir {} + 2>/dev/null || true
      [ ! -d "$h/$RUNTIME_TEST_CGROUP" ] || left+=" $h/$RUNTIME_TEST_CGROUP"
    done
    [ -n "$left" ] || return 0
    sleep 0.1 # processes are still exiting
  done
  echo "left behind:$left" >&2
  exit 1
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
"$here/../cluster/run.sh" "/opt /run /var/lib" "$@" -test.timeout 0 &
test_pid=$!
status=0
wait "$test_pid" || status=$?
test_pid=
exit $status
