#!/bin/bash
# run.sh TEST_BINARY [FLAGS]: runs each test in its own mount, network and PID namespaces, in which it
# starts a machine for each node. All processes, mounts and interfaces end with them, and the cgroups
# are removed. Requires root.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
binary=$(realpath "$1")
shift
export CLUSTER_TEST_ROOT=${CLUSTER_TEST_ROOT:-$(cd "$here/../.." && pwd)}
export CLUSTER_TEST_DIR=${CLUSTER_TEST_DIR:-$CLUSTER_TEST_ROOT/.cache/cluster-test}
export CLUSTER_TEST_AGENT_DIR=${CLUSTER_TEST_AGENT_DIR:-$CLUSTER_TEST_ROOT/.cache/agent-test}
CLUSTER_TEST_CLANG=$(command -v clang-19 || command -v clang)
export CLUSTER_TEST_CLANG
for dir in "$CLUSTER_TEST_ROOT" "$CLUSTER_TEST_DIR" "$CLUSTER_TEST_AGENT_DIR"; do
  case $dir in /etc/* | /opt/* | /run/* | /var/*)
    echo "$dir: each node has its own /etc, /opt, /run and /var; expected another directory" >&2
    exit 1
    ;;
  esac
done

export PATH=$CLUSTER_TEST_DIR/bin:$PATH # containerd runs its shim, tests run ctr
# The nodes' cgroups are below one of this run in each hierarchy.
hierarchies=$(findmnt -n -o TARGET -t cgroup,cgroup2)
unified=$(findmnt -n -o TARGET -t cgroup2 | head -n 1)
export CLUSTER_TEST_CGROUP_VERSION=2
for controller in cpu cpuset memory pids; do
  grep -qw "$controller" "$unified/cgroup.controllers" || CLUSTER_TEST_CGROUP_VERSION=1
done
if [ "$CLUSTER_TEST_CGROUP_VERSION" = 1 ]; then
  for controller in cpu cpuset memory pids name=systemd; do
    findmnt -n -t cgroup -o OPTIONS | tr , '\n' | grep -qx "$controller" ||
      { echo "neither cgroup v2 nor a hierarchy of cgroup v1 has $controller (test/README.md)" >&2; exit 1; }
  done
  echo "skipped: cgroup v2, because controllers of this machine are in hierarchies of cgroup v1; the nodes have those" >&2
fi
export CLUSTER_TEST_CGROUP=delegated-ipam-cluster-test-$$
test_pid=
cleanup() {
  # unshare ignores SIGTERM and SIGINT. When it is killed, its child is killed too.
  [ -z "$test_pid" ] || kill -KILL "$test_pid" 2>/dev/null || true
  for _ in $(seq 100); do
    left=
    for h in $hierarchies; do
      find "$h/$CLUSTER_TEST_CGROUP" -depth -type d -exec rmdir {} + 2>/dev/null || true
      [ ! -d "$h/$CLUSTER_TEST_CGROUP" ] || left+=" $h/$CLUSTER_TEST_CGROUP"
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

rm -f "$CLUSTER_TEST_DIR/measurements.md"
status=0
for name in ${CLUSTER_TEST_NAME:-TestCluster TestClusterPods TestClusterQuickstart}; do
  unshare --mount --net --pid --fork --kill-child --mount-proc -- bash -c '
    set -euo pipefail
    mount -t tmpfs tmpfs /run
    ip link set lo up
    CLUSTER_TEST_NAMESPACED=yes "$@"
    exit' run "$binary" -test.run "^$name\$/(${CLUSTER_TEST_RUN:-.})" -test.v -test.timeout 0 "$@" &
  test_pid=$!
  wait "$test_pid" || status=1
  test_pid=
done

echo
echo "| case | measurement | value |"
echo "|---|---|---|"
cat "$CLUSTER_TEST_DIR/measurements.md" 2>/dev/null || true
exit $status
