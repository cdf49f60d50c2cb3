#!/bin/bash
# build.sh MODULE DIR: builds whereabouts, as tools/MODULE/go.mod pins it, into DIR/bin, and copies
# its CRDs and its manifest into DIR. Go's build cache makes a second run short.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
pinned=$here/../../tools/$1
module=github.com/k8snetworkplumbingwg/whereabouts
command -v ip >/dev/null || { echo "ip was not found; run 'apt-get install --no-install-recommends iproute2'" >&2; exit 1; }
mkdir -p "$2/bin"
dir=$(cd "$2" && pwd)

CGO_ENABLED=0 go build -C "$pinned" -trimpath -buildvcs=false -ldflags '-s -w' -o "$dir/bin/whereabouts" $module/cmd

source=$("$here/../programs/source.sh" "$(realpath "$pinned")" $module)
rm -rf "$dir/crds" "$dir/install"
mkdir "$dir/crds" "$dir/install"
cp "$source"/doc/crds/whereabouts.cni.cncf.io_*.yaml "$dir/crds"
cp "$source"/doc/crds/daemonset-install.yaml "$dir/install"
