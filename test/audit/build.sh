#!/bin/bash
# build.sh DIR: copies Cilium's CRD of CiliumNodes into DIR/crds.
set -euo pipefail
command -v ip >/dev/null || { echo "ip was not found; run 'apt-get install --no-install-recommends iproute2'" >&2; exit 1; }
source=$("$(dirname "$0")/../programs/source.sh" cilium github.com/cilium/cilium)
rm -rf "$1/crds"
mkdir -p "$1/crds"
cp "$source/pkg/k8s/apis/cilium.io/client/crds/v2/ciliumnodes.yaml" "$1/crds"
