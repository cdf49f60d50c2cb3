#!/bin/bash
# crds.sh DIR: copies the CRDs of the cilium that test/programs/go.mod pins into DIR, unless it exists.
set -euo pipefail
mkdir -p "$(dirname "$1")"
dir=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
[ ! -d "$dir" ] || exit 0
cilium=github.com/cilium/cilium
cd "$(dirname "$0")/../programs"
source=$(go mod download -json $cilium@"$(go list -m -f '{{.Version}}' $cilium)" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
mkdir -p "$dir.new"
cp "$source"/pkg/k8s/apis/cilium.io/client/crds/v2*/*.yaml "$dir.new"
mv "$dir.new" "$dir"
