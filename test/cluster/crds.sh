#!/bin/bash
# crds.sh DIR: copies the CRDs of Cilium into DIR, unless it exists; with RELEASES=older of the older one.
set -euo pipefail
mkdir -p "$(dirname "$1")"
dir=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
[ ! -d "$dir" ] || exit 0
source=$("$(dirname "$0")/../programs/source.sh" "cilium${RELEASES:+-$RELEASES}" github.com/cilium/cilium)
mkdir -p "$dir.new"
cp "$source"/pkg/k8s/apis/cilium.io/client/crds/v2*/*.yaml "$dir.new"
mv "$dir.new" "$dir"
