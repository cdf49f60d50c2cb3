#!/bin/bash
# build.sh DIR: builds the kube-apiserver that test/programs/go.mod pins into DIR, unless it exists,
# and checks that etcd is installed.
set -euo pipefail
programs=$(cd "$(dirname "$0")/../programs" && pwd)
command -v etcd >/dev/null ||
  { echo "etcd was not found; run 'apt-get install --no-install-recommends etcd-server'" >&2; exit 1; }
mkdir -p "$1"
dir=$(cd "$1" && pwd)
[ ! -x "$dir/kube-apiserver" ] || exit 0
echo "building kube-apiserver" >&2
# The version decides which features it has.
version=$(cd "$programs" && go list -m -f '{{.Version}}' k8s.io/kubernetes)
go build -C "$programs" -trimpath -buildvcs=false \
  -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$version" \
  -o "$dir/kube-apiserver" k8s.io/kubernetes/cmd/kube-apiserver
