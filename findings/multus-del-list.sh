#!/bin/sh
# multus-del-list.sh: which configuration do the plugins of multus's default network get for DEL?
#
# Version: cmd/multus of github.com/k8snetworkplumbingwg/multus-cni v4.3.0 (gopkg.in/…/multus-cni.v4), without a
# cluster, with plugins/ipam/host-local of github.com/containernetworking/plugins v1.10.0 as the only plugin.
#
# One would guess: that of ADD, which multus keeps in a file for each container and reads for DEL. A delegate that is a
# list need not have a cniVersion, because multus adds its own one.
#
# Observed: it does so for both verbs, but for DEL by encoding a Go type which knows of "ipam" the type alone (CmdDel in
# pkg/multus/multus.go, types.IPAM of the CNI library). So host-local refuses the DEL; a plugin that needs no other key
# would look in its default place. The file is removed anyway, so the runtime's next DEL succeeds without a call of
# any plugin, and the address stays allocated. With a cniVersion in the list, or as a single plugin, DEL gets what ADD
# got.
#
# Output:
#   list with cniVersion: ADD reads ipam with dataDir ranges type
#     DEL reads dataDir ranges type: exit status 0; DEL again: exit status 0, leases 0
#   list without cniVersion: ADD reads ipam with dataDir ranges type
#     DEL reads type: exit status 1 (no IP ranges specified); DEL again: exit status 0, leases 1
#
# Usage: multus-del-list.sh. It needs go and jq in PATH; the build takes minutes. The exit status is 1 if the
# behaviour differs from the output above, and 2 if something is missing.
set -eu
self=$(realpath "$0")
for program in go jq; do
  command -v $program >/dev/null || { echo "missing: $program" >&2; exit 2; }
done
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
export GOBIN=$dir GOFLAGS=-mod=mod GO111MODULE=on CGO_ENABLED=0
go install github.com/containernetworking/plugins/plugins/ipam/host-local@v1.10.0 || exit 2
go mod init example >/dev/null 2>&1
go mod edit -require gopkg.in/k8snetworkplumbingwg/multus-cni.v4@v4.3.0
go build -o multus gopkg.in/k8snetworkplumbingwg/multus-cni.v4/cmd/multus >/dev/null 2>&1 || exit 2
cat >"$dir/plugin" <<'PLUGIN'
#!/bin/sh
# host-local, which keeps what it has read for each verb.
dir=${0%/*}
cat >"$dir/$CNI_COMMAND"
exec "$dir/host-local" <"$dir/$CNI_COMMAND"
PLUGIN
chmod +x "$dir/plugin"

# call VERB VERSION: VERSION is a key of the list, or nothing. The namespace is that of the caller, which the
# CNI library permits with CNI_NETNS_OVERRIDE.
call() {
  jq -n --arg dir "$dir" "{cniVersion: \"1.0.0\", name: \"multus\", type: \"multus\", binDir: \$dir, cniDir: (\$dir + \"/cache\"),
    logLevel: \"panic\", delegates: [{name: \"net\"$2, plugins: [{type: \"plugin\", ipam: {type: \"host-local\",
      dataDir: (\$dir + \"/leases\"), ranges: [[{subnet: \"10.1.0.0/24\"}]]}}]}]}" |
    CNI_COMMAND=$1 CNI_CONTAINERID=example CNI_IFNAME=example0 CNI_NETNS=/proc/self/ns/net CNI_NETNS_OVERRIDE=true CNI_PATH=$dir \
      CNI_ARGS='IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=example;K8S_POD_INFRA_CONTAINER_ID=example;K8S_POD_UID=example' \
      "$dir/multus" >"$dir/output" 2>/dev/null
}

keys() {
  jq -r '.ipam | keys | join(" ")' "$dir/$1"
}

# del VERSION prints the exit status of a DEL, and host-local's error.
del() {
  status=0
  call DEL "$1" || status=$?
  reason=$(jq -r .msg "$dir/output" 2>/dev/null | sed -n 's/.*: \(.*\)/ (\1)/p')
  echo "exit status $status$reason"
}

# round NAME VERSION
round() {
  call ADD "$2" || { cat "$dir/output" >&2; exit 1; }
  echo "$1: ADD reads ipam with $(keys ADD)"
  first=$(del "$2")
  echo "  DEL reads $(keys DEL): $first; DEL again: $(del "$2"), leases $(find "$dir/leases/net" -name '10.*' | wc -l)"
}
{
  round 'list with cniVersion' ', cniVersion: "1.0.0"'
  round 'list without cniVersion' ''
} >"$dir/observed"
cat "$dir/observed"
sed -n '/^# Output:/,/^#$/s/^#   //p' "$self" >"$dir/expected"
diff "$dir/expected" "$dir/observed" || { echo "the behaviour has changed: < expected, > observed" >&2; exit 1; }
