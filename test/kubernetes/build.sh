#!/bin/bash
# build.sh DIR AGENT_DIR: builds what the test needs beside the programs of this tree: into
# AGENT_DIR the programs of "make agent-test", into DIR those of Kubernetes, containerd, Helm, the image
# of the pods and Cilium's chart. Existing files are not built again. With RELEASES=older they are of the
# older releases of Cilium and Kubernetes.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
missing=
for pair in runc:runc busybox:busybox-static iptables:iptables nsenter:util-linux findmnt:util-linux; do
  command -v "${pair%%:*}" >/dev/null || missing+=" ${pair##*:}"
done
[ -z "$missing" ] || { echo "missing: run 'apt-get install --no-install-recommends$missing'" >&2; exit 1; }

"$here/../agent/build.sh" "$2"
mkdir -p "$1/bin"
dir=$(cd "$1" && pwd)
ln -sf "$(realpath "$2")"/bin/{etcd,kube-apiserver} "$dir/bin/"
"$here/../programs/build.sh" "$dir/bin" kubectl kubelet kube-controller-manager kube-scheduler \
  containerd containerd-shim-runc-v2 ctr
[ -x "$dir/bin/helm" ] || CGO_ENABLED=0 go build -C "$root/test/external" -o "$dir/bin/helm" helm.sh/helm/v3/cmd/helm

if [ ! -f "$dir/charts/index.yaml" ]; then
  cilium=$("$here/../programs/source.sh" "$root/test/external" github.com/cilium/cilium)
  "$dir/bin/helm" package "$cilium/install/kubernetes/cilium" --destination "$dir/charts"
  "$dir/bin/helm" repo index "$dir/charts"
fi

if [ ! -f "$dir/busybox.tar" ]; then
  # It is the image of the pods' sandboxes, too, which only wait; CRI ends them by SIGKILL.
  "$here/../runtime/image.sh" "$dir/busybox.tar" localhost/cluster-test/busybox:1
fi
