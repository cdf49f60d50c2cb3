#!/bin/bash
# build.sh MODULE DIR: builds the programs of whereabouts, as tools/MODULE/go.mod pins them, into DIR/bin,
# and copies its CRDs and its manifest into DIR. Go's build cache makes a second run short.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
pinned=$(realpath "$here/../../tools/$1")
module=github.com/k8snetworkplumbingwg
command -v ip >/dev/null || { echo "ip was not found; run 'apt-get install --no-install-recommends iproute2'" >&2; exit 1; }
rm -rf "$2"/{crds,install}
mkdir -p "$2"/{bin,crds,install}
dir=$(cd "$2" && pwd)
source=$("$here/../programs/source.sh" "$pinned" $module/whereabouts)
definitions=$("$here/../programs/source.sh" "$pinned" $module/network-attachment-definition-client)

# The names are those of its image.
for program in whereabouts=cmd ip-control-loop=cmd/controlloop ip-reconciler=cmd/reconciler node-slice-controller=cmd/nodeslicecontroller; do
  [ ! -d "$source/${program#*=}" ] ||
    CGO_ENABLED=0 go build -C "$pinned" -trimpath -buildvcs=false -ldflags '-s -w' -o "$dir/bin/${program%=*}" "$module/whereabouts/${program#*=}"
done

cp "$source"/doc/crds/whereabouts.cni.cncf.io_*.yaml "$definitions/artifacts/networks-crd.yaml" "$dir/crds"
cp "$source"/doc/crds/daemonset-install.yaml "$dir/install"
