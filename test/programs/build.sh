#!/bin/bash
# build.sh DIR PROGRAM…: builds real programs into DIR, unless it has them, from the modules that pin
# them: cilium, kubernetes and containerd beside this file. With RELEASES=older those of cilium and
# kubernetes are of cilium-older and kubernetes-older (test/versions/versions.txt).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
older=${RELEASES:+-$RELEASES}
mkdir -p "$1"
dir=$(cd "$1" && pwd)
shift
for name; do
  module=kubernetes$older package=k8s.io/kubernetes/cmd/$name cgo=0 flags=
  case $name in
    cilium-agent) package=github.com/cilium/cilium/daemon cgo=1 ;;
    cilium-health-responder) package=github.com/cilium/cilium/cilium-health/responder ;;
    cilium-cni) package=github.com/cilium/cilium/plugins/cilium-cni ;;
    # It also runs in a container without a C library.
    cilium-dbg) package=github.com/cilium/cilium/cilium-dbg ;;
    containerd | containerd-shim-runc-v2 | ctr) module=containerd package=github.com/containerd/containerd/v2/cmd/$name ;;
    etcd) package=go.etcd.io/etcd/server/v3 ;;
    # The version decides which features it has.
    *) flags="-X k8s.io/component-base/version.gitVersion=$(cd "$here/$module" && go list -m -f '{{.Version}}' k8s.io/kubernetes)" ;;
  esac
  case $name in cilium-*) module=cilium$older ;; esac
  pinned=$(cat "$here/$module"/go.{mod,sum} | sha256sum)
  [ ! -x "$dir/$name" ] || [ "$(cat "$dir/.$name")" != "$pinned" ] || continue
  echo "building $name" >&2
  CGO_ENABLED=$cgo go build -C "$here/$module" -trimpath -buildvcs=false -ldflags "-s -w $flags" -o "$dir/$name" "$package"
  echo "$pinned" >"$dir/.$name"
done
