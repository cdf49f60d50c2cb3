#!/bin/bash
# node.sh AGENT_FLAG…: the first process of a node, in new mount, network, PID, UTS and IPC namespaces. It sets
# them up as a machine that boots, and keeps the node's services running. From the environment: NODE_NAME,
# NODE_IP and NODE_IP6, NODE_IPS for the kubelet, NODE_AGENT, the program, NODE_DIR, which holds the node's disk and logs,
# API_HOST and API_HOST6, and the variables of run.sh.
set -euo pipefail

# Into the node's cgroups, which a reboot empties. They become the roots of a new cgroup namespace.
if [ -z "${NODE_BOOTING-}" ]; then
  hostname "$NODE_NAME"
  mount --make-rprivate /
  for h in $(findmnt -n -o TARGET -t cgroup,cgroup2); do
    group=$h/$CLUSTER_TEST_CGROUP/$NODE_NAME
    find "$group" -mindepth 1 -depth -type d -exec rmdir {} + 2>/dev/null || true
    mkdir -p "$group"
    if [ "$CLUSTER_TEST_CGROUP_VERSION" = 2 ]; then
      echo "+cpu +cpuset +memory +pids" | tee "$h/cgroup.subtree_control" >"$(dirname "$group")/cgroup.subtree_control"
    fi
    if [ -f "$h/cpuset.cpus" ]; then
      for file in cpuset.cpus cpuset.mems; do
        cat "$h/$file" >"$(dirname "$group")/$file"
        cat "$h/$file" >"$group/$file"
      done
    fi
    echo 0 >"$group/cgroup.procs"
  done
  NODE_BOOTING=yes exec unshare --cgroup bash "$0" "$@"
fi

# File systems.
controllers=$(findmnt -n -t cgroup -o OPTIONS | tr , '\n' | grep -Evx 'rw|ro|nosuid|nodev|noexec|relatime|noatime' || true)
umount -R /sys
mount -t sysfs sysfs /sys
if [ "$CLUSTER_TEST_CGROUP_VERSION" = 2 ]; then
  mount -t cgroup2 cgroup2 /sys/fs/cgroup
  # Only a cgroup without processes has children with controllers.
  mkdir -p /sys/fs/cgroup/services
  echo 0 >/sys/fs/cgroup/services/cgroup.procs
  controllers=
else
  mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup
fi
for c in $controllers; do
  mkdir "/sys/fs/cgroup/${c#name=}"
  case $c in
    name=*) mount -t cgroup -o "none,$c" cgroup "/sys/fs/cgroup/${c#name=}" ;;
    *) mount -t cgroup -o "$c" cgroup "/sys/fs/cgroup/$c" ;;
  esac
done
mount -t bpf bpf /sys/fs/bpf
mount -t proc proc /proc
# The kubelet and the agent set sysctls of the whole machine: only those of the network are the
# node's. The kubelet reads some values back.
mount --bind /proc/sys /proc/sys
mount --bind /proc/sys/net /proc/sys/net
mount -o remount,bind,ro /proc/sys
mkdir -p "$NODE_DIR/sysctl"
for setting in vm.overcommit_memory=1 vm.panic_on_oom=0 kernel.panic=10 kernel.panic_on_oops=1 kernel.keys.root_maxkeys=1000000 kernel.keys.root_maxbytes=25000000; do
  name=${setting%%=*}
  echo "${setting##*=}" >"$NODE_DIR/sysctl/$name"
  mount --bind "$NODE_DIR/sysctl/$name" "/proc/sys/${name//.//}"
done
mkdir -p "$NODE_DIR"/{var/lib,var/log,var/tmp,opt,etc,etc-work,cni}
ln -sfn /run "$NODE_DIR/var/run"
mount -t overlay -o "lowerdir=/etc,upperdir=$NODE_DIR/etc,workdir=$NODE_DIR/etc-work" overlay /etc
mkdir -p /etc/cni
mount --bind "$NODE_DIR/cni" /etc/cni
mount --bind "$NODE_DIR/opt" /opt
mount --bind "$NODE_DIR/var" /var
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/netns /run/lock /run/cilium /etc/cni/net.d /opt/cni/bin
[ -s /etc/machine-id ] && [ -f "$NODE_DIR/etc/machine-id" ] || tr -d - </proc/sys/kernel/random/uuid >/etc/machine-id
mount --make-rshared / # the kubelet propagates mounts into containers

# The network.
ip link set lo up
until ip link show eth0 >/dev/null 2>&1; do sleep 0.1; done # the test connects it
ip addr add "$NODE_IP/24" dev eth0
ip addr add "$NODE_IP6/64" dev eth0 nodad
ip link set eth0 up
ip route add default via "$API_HOST"
ip -6 route add default via "$API_HOST6"
echo 1 >/proc/sys/net/ipv4/ip_forward
echo 1 >/proc/sys/net/ipv6/conf/all/forwarding

# Programs and services.
agent=$CLUSTER_TEST_AGENT_DIR
cp -u "$agent/bin/cilium-cni" "$CLUSTER_TEST_ROOT"/.cache/plugins/{host-local,loopback} /opt/cni/bin/
mkdir -p /run/bin
ln -s "$CLUSTER_TEST_CLANG" /run/bin/clang

cat >/run/containerd.toml <<T
version = 3
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "localhost/cluster-test/busybox:1"
[plugins."io.containerd.cri.v1.runtime"]
  # A machine may lack CAP_SYS_RESOURCE, which a negative value takes.
  restrict_oom_score_adj = true
T
cat >/run/kubelet.yaml <<T
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
oomScoreAdj: 0
makeIPTablesUtilChains: false
volumePluginDir: /var/lib/kubelet/plugins/volume
# The network of the test has no other clients than the API server.
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
evictionHard: {memory.available: 100Mi, nodefs.available: "1%", imagefs.available: "1%", nodefs.inodesFree: "1%"}
imageGCHighThresholdPercent: 100
T

service() { # NAME COMMAND…: runs a service, and starts it again when it ends
  local name=$1
  shift
  while :; do
    "$@" >>"$NODE_DIR/$name.log" 2>&1 || echo "--- $name ended with $?" >>"$NODE_DIR/$name.log"
    sleep 1
  done &
}
service containerd containerd --config /run/containerd.toml
until ctr version >/dev/null 2>&1; do sleep 0.1; done
for archive in "$CLUSTER_TEST_DIR/busybox.tar" "$CLUSTER_TEST_DIR"/images/*.tar; do
  ctr -n k8s.io images import "$archive" >>"$NODE_DIR/images.log" 2>&1
done
service kubelet "$CLUSTER_TEST_DIR/bin/kubelet" --config=/run/kubelet.yaml --kubeconfig="$NODE_KUBECONFIG" \
  --hostname-override="$NODE_NAME" --node-ip="$NODE_IPS" --cert-dir=/var/lib/kubelet/pki
export PATH=/run/bin:$agent/bin:$PATH K8S_NODE_NAME=$NODE_NAME CILIUM_K8S_NAMESPACE=kube-system
service cilium-agent "$agent/bin/$NODE_AGENT" --lib-dir="$agent/lib" "$@"
touch "$NODE_DIR/booted"
while :; do wait -n || true; done # reaps the orphans of the node
