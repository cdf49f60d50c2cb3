#!/bin/sh
# skel-own-namespace.sh: does an ADD that the CNI library refuses run the plugin?
#
# Version: pkg/skel of github.com/containernetworking/cni as built into plugins/ipam/host-local of
# github.com/containernetworking/plugins v1.10.0.
#
# One would guess: no. CNI_NETNS must not be the plugin's own namespace, which is known before anything
# is done; and a failed ADD prints one error in JSON.
#
# Observed: the skeleton compares the namespaces after the plugin's function has returned. The address is
# allocated and stays, the exit status is 1, and stdout has two JSON documents, the result and the error,
# which a caller that parses stdout once cannot read (pluginMain in pkg/skel/skel.go). A caller that asks
# for an address of its own namespace gets this.
#
# Output:
#   exit status 1
#   { "cniVersion": "1.0.0", "ips": [ { "address": "10.1.0.2/24", "gateway": "10.1.0.1" } ] }{ "code": 8, "msg": "plugin's netns and netns from CNI_NETNS should not be the same" }
#   leases: 10.1.0.2
#
# Usage: skel-own-namespace.sh. It needs go in PATH. The exit status is 1 if the behaviour differs from the
# output above, and 2 if something is missing.
set -eu
command -v go >/dev/null || { echo "missing: go" >&2; exit 2; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
GOBIN=$dir GOFLAGS='' GO111MODULE=on CGO_ENABLED=0 go install github.com/containernetworking/plugins/plugins/ipam/host-local@v1.10.0 || exit 2

{
  status=0
  printf '{"cniVersion":"1.0.0","name":"net","type":"ptp","ipam":{"type":"host-local","dataDir":"%s/leases","ranges":[[{"subnet":"10.1.0.0/24"}]]}}' "$dir" |
    CNI_COMMAND=ADD CNI_CONTAINERID=example CNI_IFNAME=eth0 CNI_NETNS=/proc/self/ns/net CNI_PATH=$dir "$dir/host-local" >"$dir/stdout" || status=$?
  echo "exit status $status"
  tr -s ' \n' ' ' <"$dir/stdout"
  echo
  echo "leases: $(cd "$dir/leases/net" && ls -d 10.*)"
} >"$dir/observed"
cat "$dir/observed"
sed -n '/^# Output:/,/^#$/s/^#   //p' "$0" >"$dir/expected"
diff "$dir/expected" "$dir/observed" || { echo "the behaviour has changed: < expected, > observed" >&2; exit 1; }
