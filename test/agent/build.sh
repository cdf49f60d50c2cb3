#!/bin/bash
# build.sh DIR: builds the real programs into DIR/bin, and copies Cilium's CRDs and BPF sources into DIR.
# Existing files are not built again, but the patched agent is when its patch (deploy/cilium/agent) has
# changed. With RELEASES=older they are of the older releases.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
programs=$here/../programs
mkdir -p "$1/bin"
dir=$(cd "$1" && pwd)

missing=
for pair in clang-19:clang-19 iptables:iptables ipset:ipset ip:iproute2 unshare:util-linux; do
  command -v "${pair%%:*}" >/dev/null || missing+=" ${pair##*:}"
done
[ -z "$missing" ] || { echo "missing: run 'apt-get install --no-install-recommends$missing'" >&2; exit 1; }

"$programs/build.sh" "$dir/bin" etcd kube-apiserver cilium-agent cilium-dbg cilium-health-responder cilium-cni
"$here/../cluster/crds.sh" "$dir/crds"

cilium=github.com/cilium/cilium
module=cilium${RELEASES:+-$RELEASES}
source=$("$programs/source.sh" "$module" $cilium)
patch=$here/../../deploy/cilium/agent
sum=$(cat "$patch"/*.patch "$patch/patch.sh" "$source/VERSION" | sha256sum)
if [ "$(cat "$dir/patched/sum" 2>/dev/null)" != "$sum" ]; then
  rm -f "$dir/bin/cilium-agent-delegated"
  mkdir -p "$dir/patched"
  "$patch/patch.sh" "$source" "$dir/patched/cilium"
  # The same dependencies as those of the other agent, so that only Cilium's packages are built.
  sed "s|=> \./|=> $programs/$module/|" "$programs/$module/go.mod" >"$dir/patched/patched.mod"
  cp "$programs/$module/go.sum" "$dir/patched/patched.sum"
  go mod edit -replace "$cilium=$dir/patched/cilium" "$dir/patched/patched.mod"
fi
if [ ! -x "$dir/bin/cilium-agent-delegated" ]; then
  echo "building cilium-agent-delegated" >&2
  go build -C "$programs/$module" -trimpath -buildvcs=false -ldflags '-s -w' -modfile "$dir/patched/patched.mod" \
    -o "$dir/bin/cilium-agent-delegated" $cilium/daemon
fi
echo "$sum" >"$dir/patched/sum"

if [ ! -d "$dir/lib/bpf" ]; then
  mkdir -p "$dir/lib"
  cp -r "$source/bpf" "$dir/lib/bpf.new"
  chmod -R u+w "$dir/lib/bpf.new"
  mv "$dir/lib/bpf.new" "$dir/lib/bpf"
fi
