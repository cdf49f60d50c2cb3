#!/bin/bash
# run.sh TEST_BINARY [FLAGS]: runs each test of the binary in its own mount,
# network, PID and cgroup namespaces. They end with the test, and with them every
# process, mount, interface and BPF program that it created. Requires root.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
binary=$(realpath "$1")
shift
export AGENT_TEST_ROOT=${AGENT_TEST_ROOT:-$(cd "$here/../.." && pwd)}
export AGENT_TEST_DIR=${AGENT_TEST_DIR:-$AGENT_TEST_ROOT/.cache/agent-test}
AGENT_TEST_CLANG=$(command -v clang-19 || command -v clang)
export AGENT_TEST_CLANG

# BPF programs for sockets are attached at the root of a cgroup namespace. A
# separate cgroup keeps them away from the processes of the host.
unified=$(findmnt -n -o TARGET -t cgroup2 | head -n 1)
[ -n "$unified" ] || { echo "no cgroup2 is mounted; expected one, as systemd mounts at /sys/fs/cgroup" >&2; exit 1; }
group=$unified/delegated-ipam-agent-test-$$
mkdir "$group"
test_pid=
cleanup() {
  # unshare ignores SIGTERM and SIGINT. When it is killed, its child is killed too.
  [ -z "$test_pid" ] || kill -KILL "$test_pid" 2>/dev/null || true
  for _ in $(seq 100); do
    find "$group" -depth -type d -exec rmdir {} + 2>/dev/null && return
    sleep 0.1 # processes are still exiting
  done
  echo "left behind: $group" >&2
  exit 1
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

rm -f "$AGENT_TEST_DIR/measurements.md"
tests=$("$binary" -test.list "${AGENT_TEST_RUN:-.}")
[ -n "$tests" ] || { echo "AGENT_TEST_RUN=${AGENT_TEST_RUN-} names no test" >&2; exit 1; }
status=0
for test in $tests; do
  # The shell enters the cgroup before it unshares, which makes the cgroup the root of
  # the new cgroup namespace. All processes of a PID namespace end with its first one.
  bash -c 'echo $$ >"$1/cgroup.procs"; shift; exec "$@"' enter-cgroup "$group" \
    unshare --mount --net --cgroup --pid --fork --kill-child --mount-proc -- \
    bash "$here/namespaces.sh" "$binary" -test.run "^$test\$" -test.v -test.timeout 0 "$@" &
  test_pid=$!
  wait "$test_pid" || status=1
  test_pid=
done

echo
echo "| test | measurement | value |"
echo "|---|---|---|"
cat "$AGENT_TEST_DIR/measurements.md" 2>/dev/null || true
exit $status
