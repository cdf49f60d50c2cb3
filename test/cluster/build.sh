#!/bin/bash
# build.sh DIR [PROGRAM…]: builds the etcd and kube-apiserver that test/programs/go.mod pins, and other
# programs of Kubernetes, into DIR, unless they exist.
set -euo pipefail
programs=$(cd "$(dirname "$0")/../programs" && pwd)
mkdir -p "$1"
dir=$(cd "$1" && pwd)
shift
[ -x "$dir/etcd" ] ||
  CGO_ENABLED=0 go build -C "$programs" -trimpath -buildvcs=false -ldflags '-s -w' -o "$dir/etcd" go.etcd.io/etcd/server/v3
for name in kube-apiserver "$@"; do
  [ ! -x "$dir/$name" ] || continue
  echo "building $name" >&2
  # The version decides which features it has.
  version=$(cd "$programs" && go list -m -f '{{.Version}}' k8s.io/kubernetes)
  CGO_ENABLED=0 go build -C "$programs" -trimpath -buildvcs=false \
    -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$version" \
    -o "$dir/$name" "k8s.io/kubernetes/cmd/$name"
done
