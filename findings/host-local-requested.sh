#!/bin/sh
# host-local-requested.sh: when does host-local allocate a released address again?
#
# Version: plugins/ipam/host-local of github.com/containernetworking/plugins v1.10.0.
#
# One would guess: when it has gone round its range. It continues behind the last address that it has chosen, so that
# caches of ARP, connections and policies of the last container are forgotten before an address is used again. A caller
# that names its address does not take part in that.
#
# Observed: a requested address, too, becomes the one behind which host-local continues (Reserve in
# backend/disk/backend.go). A container that comes back with its low address makes the next ADD return an address that
# was released a moment ago, though 250 others were never used.
#
# Output:
#   no request: ADD a 10.1.0.2, ADD b 10.1.0.3, DEL b, ADD c 10.1.0.4
#   a restores its address: ADD a 10.1.0.2, ADD b 10.1.0.3, DEL b, DEL a, ADD a with IP=10.1.0.2 10.1.0.2, ADD c 10.1.0.3
#
# Usage: host-local-requested.sh. It needs go in PATH. The exit status is 1 if the behaviour differs from the output
# above, and 2 if something is missing.
set -eu
command -v go >/dev/null || { echo "missing: go" >&2; exit 2; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
GOBIN=$dir GOFLAGS='' GO111MODULE=on CGO_ENABLED=0 go install github.com/containernetworking/plugins/plugins/ipam/host-local@v1.10.0 || exit 2

# call VERB ID CNI_ARGS runs host-local in the network $network, and prints the call with the address.
call() {
  address=$(printf '{"cniVersion":"1.0.0","name":"%s","type":"ptp","ipam":{"type":"host-local","dataDir":"%s/leases","ranges":[[{"subnet":"10.1.0.0/24"}]]}}' "$network" "$dir" |
    CNI_COMMAND=$1 CNI_CONTAINERID=$2 CNI_IFNAME=eth0 CNI_NETNS=/run/netns/none CNI_PATH=$dir CNI_ARGS=$3 "$dir/host-local" |
    sed -n 's|.*"address": "\(.*\)/.*|\1|p')
  printf ' %s %s%s%s' "$1" "$2" "${3:+ with $3}" "${address:+ $address}"
}

{
  network=first
  printf 'no request:'
  call ADD a '' && printf ,
  call ADD b '' && printf ,
  call DEL b '' && printf ,
  call ADD c '' && echo
  network=second
  printf 'a restores its address:'
  call ADD a '' && printf ,
  call ADD b '' && printf ,
  call DEL b '' && printf ,
  call DEL a '' && printf ,
  call ADD a IP=10.1.0.2 && printf ,
  call ADD c '' && echo
} >"$dir/observed"
cat "$dir/observed"
sed -n '/^# Output:/,/^#$/s/^#   //p' "$0" >"$dir/expected"
diff "$dir/expected" "$dir/observed" || { echo "the behaviour has changed: < expected, > observed" >&2; exit 1; }
