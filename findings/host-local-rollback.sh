#!/bin/sh
# host-local-rollback.sh: does a refused ADD leave the address that the container already has?
#
# Version: plugins/ipam/host-local of github.com/containernetworking/plugins v1.10.0.
#
# One would guess: yes. "duplicate allocation is not allowed" protects the first allocation, and a call that
# fails undoes only what it has done itself.
#
# Observed: if an earlier range succeeds before a later one is refused, the roll-back releases by container
# ID and interface, in the whole store: the refused ADD frees the address that the container uses, and the
# next container gets it (cmdAdd in main.go, ReleaseByID in backend/disk/backend.go). Here a network
# becomes dual-stack, and a runtime repeats the ADD of a container that has an IPv6 address.
#
# Output:
#   ADD a, IPv6: fd00:10::2/64
#   ADD a, IPv4 and IPv6: failed to allocate for range 1: fd00:10::2 has been allocated to a, duplicate allocation is not allowed
#   leases: none
#   ADD b, IPv6: fd00:10::2/64
#
# Usage: host-local-rollback.sh. It needs go in PATH. The exit status is 1 if the behaviour differs from the
# output above, and 2 if something is missing.
set -eu
command -v go >/dev/null || { echo "missing: go" >&2; exit 2; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
GOBIN=$dir GOFLAGS='' GO111MODULE=on CGO_ENABLED=0 go install github.com/containernetworking/plugins/plugins/ipam/host-local@v1.10.0 || exit 2

# add ID RANGES prints the address or the error of an ADD.
add() {
  printf '{"cniVersion":"1.0.0","name":"net","type":"ptp","ipam":{"type":"host-local","dataDir":"%s/leases","ranges":[%s]}}' "$dir" "$2" |
    { CNI_COMMAND=ADD CNI_CONTAINERID=$1 CNI_IFNAME=eth0 CNI_NETNS=/run/netns/none CNI_PATH=$dir "$dir/host-local" || true; } |
    sed -n 's/^ *"\(address\|msg\)": "\(.*\)".*$/\2/p'
}

v4='[{"subnet":"10.1.0.0/24"}]' v6='[{"subnet":"fd00:10::/64","rangeStart":"fd00:10::2","rangeEnd":"fd00:10::2"}]'
{
  echo "ADD a, IPv6: $(add a "$v6")"
  echo "ADD a, IPv4 and IPv6: $(add a "$v4,$v6")"
  leases=$(cd "$dir/leases/net" && ls -d fd00* 10.* 2>/dev/null | xargs)
  echo "leases: ${leases:-none}"
  echo "ADD b, IPv6: $(add b "$v6")"
} >"$dir/observed"
cat "$dir/observed"
sed -n '/^# Output:/,/^#$/s/^#   //p' "$0" >"$dir/expected"
diff "$dir/expected" "$dir/observed" || { echo "the behaviour has changed: < expected, > observed" >&2; exit 1; }
