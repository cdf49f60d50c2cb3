#!/bin/bash
# build.sh DIR: copies the CRD of CiliumNodes, of the Cilium that test/programs/go.mod pins, into
# DIR/crds.
set -euo pipefail
programs=$(cd "$(dirname "$0")/../programs" && pwd)
cilium=github.com/cilium/cilium
command -v ip >/dev/null || { echo "ip was not found; run 'apt-get install --no-install-recommends iproute2'" >&2; exit 1; }
source=$(cd "$programs" && go mod download -json $cilium@"$(go list -m -f '{{.Version}}' $cilium)" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
rm -rf "$1/crds"
mkdir -p "$1/crds"
cp "$source/pkg/k8s/apis/cilium.io/client/crds/v2/ciliumnodes.yaml" "$1/crds"
