#!/bin/bash
# build.sh DIR PROGRAMS: builds what the tests need beside the programs of this tree: into PROGRAMS
# containerd, its shim, ctr and etcd, into DIR calico-ipam and the image of the sandboxes. Existing files are
# not built again.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
missing=
for pair in runc:runc busybox:busybox-static ip:iproute2 findmnt:util-linux; do
  command -v "${pair%%:*}" >/dev/null || missing+=" ${pair##*:}"
done
[ -z "$missing" ] || { echo "missing: run 'apt-get install --no-install-recommends$missing'" >&2; exit 1; }

"$here/../programs/build.sh" "$2" containerd containerd-shim-runc-v2 ctr etcd
mkdir -p "$1"
CGO_ENABLED=0 go build -C "$here/../../tools/plugins-calico-ipam" -trimpath -buildvcs=false -ldflags '-s -w' -o "$(realpath "$1")/calico-ipam" tool
[ -f "$1/sandbox.tar" ] || "$here/image.sh" "$1/sandbox.tar" localhost/runtime-test/sandbox:1
