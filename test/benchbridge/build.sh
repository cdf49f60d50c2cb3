#!/bin/bash
# build.sh DIR CLUSTER_DIR: builds the program with cilium-operator's logic into DIR, and kube-apiserver
# and the CRDs, which other tests need too, into CLUSTER_DIR.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
dir=$(cd "$1" && pwd)
"$here/../programs/build.sh" "$2/bin" etcd kube-apiserver
"$here/../cluster/crds.sh" "$2/crds"
[ -x "$dir/cilium-operator-ipam" ] ||
  CGO_ENABLED=0 go build -C "$here/../programs/cilium" -o "$dir/cilium-operator-ipam" ./cilium-operator-ipam
