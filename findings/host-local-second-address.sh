#!/bin/sh
# host-local-second-address.sh: can one container and interface have two addresses of one range?
#
# Version: plugins/ipam/host-local of github.com/containernetworking/plugins v1.10.0.
#
# One would guess: no. A second ADD is refused: "duplicate allocation is not allowed".
#
# Observed: only an ADD that requests no address is refused. One with IP= in CNI_ARGS allocates a second
# address beside the first one, and one DEL frees both (Get in backend/allocator/allocator.go).
#
# Output:
#   ADD: 10.1.0.2/24
#   ADD again: 10.1.0.2 has been allocated to example, duplicate allocation is not allowed
#   ADD with IP=10.1.0.9: 10.1.0.9/24
#   leases: 10.1.0.2 10.1.0.9
#   after one DEL: none
#
# Usage: host-local-second-address.sh. It needs go in PATH. The exit status is 1 if the behaviour differs
# from the output above, and 2 if something is missing.
set -eu
command -v go >/dev/null || { echo "missing: go" >&2; exit 2; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
GOBIN=$dir GOFLAGS='' GO111MODULE=on CGO_ENABLED=0 go install github.com/containernetworking/plugins/plugins/ipam/host-local@v1.10.0 || exit 2

# call VERB ARGS prints the address or the error.
call() {
  printf '{"cniVersion":"1.0.0","name":"net","type":"ptp","ipam":{"type":"host-local","dataDir":"%s/leases","ranges":[[{"subnet":"10.1.0.0/24"}]]}}' "$dir" |
    { CNI_COMMAND=$1 CNI_ARGS=$2 CNI_CONTAINERID=example CNI_IFNAME=eth0 CNI_NETNS=/run/netns/none CNI_PATH=$dir "$dir/host-local" || true; } |
    sed -n 's/^ *"\(address\|msg\)": "\([^"]*\)".*$/\2/p' | sed 's/^failed to allocate for range 0: //'
}

leases() {
  found=$(cd "$dir/leases/net" && ls -d 10.* 2>/dev/null | xargs)
  echo "${found:-none}"
}

{
  echo "ADD: $(call ADD '')"
  echo "ADD again: $(call ADD '')"
  echo "ADD with IP=10.1.0.9: $(call ADD IP=10.1.0.9)"
  echo "leases: $(leases)"
  call DEL ''
  echo "after one DEL: $(leases)"
} >"$dir/observed"
cat "$dir/observed"
sed -n '/^# Output:/,/^#$/s/^#   //p' "$0" >"$dir/expected"
diff "$dir/expected" "$dir/observed" || { echo "the behaviour has changed: < expected, > observed" >&2; exit 1; }
