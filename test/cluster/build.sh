#!/bin/bash
# build.sh DIR [PROGRAM…]: builds the kube-apiserver that test/programs/go.mod pins, and other
# programs of Kubernetes, into DIR, unless they exist, and checks that etcd is installed.
set -euo pipefail
programs=$(cd "$(dirname "$0")/../programs" && pwd)
command -v etcd >/dev/null ||
  { echo "etcd was not found; run 'apt-get install --no-install-recommends etcd-server'" >&2; exit 1; }
mkdir -p "$1"
dir=$(cd "$1" && pwd)
shift
for name in kube-apiserver "$@"; do
  [ ! -x "$dir/$name" ] || continue
  echo "building $name" >&2
  # The version decides which features it has.
  version=$(cd "$programs" && go list -m -f '{{.Version}}' k8s.io/kubernetes)
  CGO_ENABLED=0 go build -C "$programs" -trimpath -buildvcs=false \
    -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$version" \
    -o "$dir/$name" "k8s.io/kubernetes/cmd/$name"
done
