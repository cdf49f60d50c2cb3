#!/bin/bash
# build.sh DIR: builds the real programs into DIR/bin, from the modules that pin them, and
# copies Cilium's CRDs and BPF sources into DIR. Existing files are not built again, but the
# patched agent is when its patch (deploy/cilium/agent) has changed.
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

build() { # NAME MODULE PACKAGE [FLAG…]
  [ -x "$dir/bin/$1" ] && return
  echo "building $1" >&2
  go build -C "$2" -trimpath -buildvcs=false -ldflags '-s -w' "${@:4}" -o "$dir/bin/$1" "$3"
}
cilium=github.com/cilium/cilium
build cilium-agent "$programs" $cilium/daemon
CGO_ENABLED=0 build cilium-dbg "$programs" $cilium/cilium-dbg # also runs in a container without a C library
build cilium-health-responder "$programs" $cilium/cilium-health/responder
build cilium-cni "$here/cilium-cni" $cilium/plugins/cilium-cni
"$here/../cluster/build.sh" "$dir/bin"
"$here/../cluster/crds.sh" "$dir/crds"

source=$(cd "$programs" && go mod download -json $cilium@"$(go list -m -f '{{.Version}}' $cilium)" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')

patch=$here/../../deploy/cilium/agent
sum=$(cat "$patch"/*.patch "$patch/patch.sh" "$source/VERSION" | sha256sum)
if [ "$(cat "$dir/patched/sum" 2>/dev/null)" != "$sum" ]; then
  rm -f "$dir/bin/cilium-agent-delegated"
  mkdir -p "$dir/patched"
  "$patch/patch.sh" "$source" "$dir/patched/cilium"
  # The same dependencies as those of the other agent, so that only Cilium's packages are built.
  cp "$programs/go.mod" "$dir/patched/patched.mod"
  cp "$programs/go.sum" "$dir/patched/patched.sum"
  go mod edit -replace "$cilium=$dir/patched/cilium" "$dir/patched/patched.mod"
fi
build cilium-agent-delegated "$programs" $cilium/daemon -modfile "$dir/patched/patched.mod"
echo "$sum" >"$dir/patched/sum"

if [ ! -d "$dir/lib/bpf" ]; then
  mkdir -p "$dir/lib"
  cp -r "$source/bpf" "$dir/lib/bpf.new"
  chmod -R u+w "$dir/lib/bpf.new"
  mv "$dir/lib/bpf.new" "$dir/lib/bpf"
fi
