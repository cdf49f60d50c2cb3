#!/bin/bash
# run.sh TEST_BINARY [FLAGS]: runs each test of the binary in mount, network,
# process and cgroup namespaces of its own. When a test ends, its process
# namespace ends, and with it every process, mount, interface and BPF program
# that it made. Needs root.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
binary=$(realpath "$1")
shift
export AGENT_TEST_ROOT=${AGENT_TEST_ROOT:-$(cd "$here/../.." && pwd)}
export AGENT_TEST_DIR=${AGENT_TEST_DIR:-$AGENT_TEST_ROOT/.cache/agent-test}
AGENT_TEST_CLANG=$(command -v clang-19 || command -v clang)
export AGENT_TEST_CLANG

# BPF programs for sockets are attached at the root of a cgroup namespace. A
# group of its own keeps them away from the machine's processes.
unified=$(findmnt -n -o TARGET -t cgroup2 | head -n 1)
[ -n "$unified" ] || { echo "no cgroup2 is mounted; expected one, as systemd mounts at /sys/fs/cgroup" >&2; exit 1; }
group=$unified/delegated-ipam-agent-test-$$
mkdir "$group"
scene_pid=
leave() {
  # unshare itself ignores SIGTERM and SIGINT; what it started dies with it.
  [ -z "$scene_pid" ] || kill -KILL "$scene_pid" 2>/dev/null || true
  for _ in $(seq 100); do
    rmdir "$group" 2>/dev/null && return
    sleep 0.1 # the kernel is still taking the processes down
  done
  echo "left behind: $group" >&2
  exit 1
}
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

rm -f "$AGENT_TEST_DIR/figures.md"
scenes=$("$binary" -test.list "${AGENT_TEST_RUN:-.}")
[ -n "$scenes" ] || { echo "AGENT_TEST_RUN=${AGENT_TEST_RUN-} names no test" >&2; exit 1; }
status=0
for scene in $scenes; do
  # This shell moves before it unshares, so that the group is the root of the new
  # cgroup namespace. Whatever runs in the process namespace ends with its first process.
  bash -c 'echo $$ >"$1/cgroup.procs"; shift; exec "$@"' enter "$group" \
    unshare --mount --net --cgroup --pid --fork --kill-child --mount-proc -- \
    bash "$here/inside.sh" "$binary" -test.run "^$scene\$" -test.v -test.timeout 0 "$@" &
  scene_pid=$!
  wait "$scene_pid" || status=1
  scene_pid=
done

echo
echo "| test | figure | value |"
echo "|---|---|---|"
cat "$AGENT_TEST_DIR/figures.md" 2>/dev/null || true
exit $status
