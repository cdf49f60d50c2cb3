#!/bin/sh
# host-local-range-start.sh: does host-local keep containers off the network and broadcast addresses?
#
# Version: plugins/ipam/host-local of github.com/containernetworking/plugins v1.10.0.
#
# One would guess: yes. Without rangeStart and rangeEnd its range has neither, and it refuses a rangeStart
# outside the subnet.
#
# Observed: it allocates both if rangeStart or rangeEnd names them; only the gateway is left out. For the
# kernel of every neighbour the last address is a broadcast address, to which TCP cannot connect.
#
# Output:
#   subnet alone: 10.1.0.2/30
#   rangeStart 10.1.0.0: 10.1.0.0/30
#   rangeStart 10.1.0.3: 10.1.0.3/30
#   route of a neighbour: broadcast 10.1.0.3 dev eth0 src 10.1.0.2
#
# Usage: host-local-range-start.sh. It needs root, go, ip and unshare in PATH. The exit status is 1 if the
# behaviour differs from the output above, and 2 if something is missing.
set -eu
for program in go ip unshare; do
  command -v $program >/dev/null || { echo "missing: $program" >&2; exit 2; }
done
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
GOBIN=$dir GOFLAGS='' GO111MODULE=on CGO_ENABLED=0 go install github.com/containernetworking/plugins/plugins/ipam/host-local@v1.10.0 || exit 2

# allocate RANGE prints the address of an ADD from an empty store.
allocate() {
  rm -rf "$dir/leases"
  printf '{"cniVersion":"1.0.0","name":"net","type":"ptp","ipam":{"type":"host-local","dataDir":"%s/leases","ranges":[[%s]]}}' "$dir" "$1" |
    CNI_COMMAND=ADD CNI_CONTAINERID=example CNI_IFNAME=eth0 CNI_NETNS=/run/netns/none CNI_PATH=$dir "$dir/host-local" |
    sed -n 's/^ *"address": "\(.*\)".*$/\1/p'
}

{
  echo "subnet alone: $(allocate '{"subnet":"10.1.0.0/30"}')"
  for start in 10.1.0.0 10.1.0.3; do
    echo "rangeStart $start: $(allocate "{\"subnet\":\"10.1.0.0/30\",\"rangeStart\":\"$start\",\"rangeEnd\":\"10.1.0.3\"}")"
  done
  printf 'route of a neighbour: '
  # shellcheck disable=SC2016
  unshare -n sh -c 'ip link add eth0 type veth && ip addr add 10.1.0.2/30 dev eth0 && ip link set veth0 up && ip link set eth0 up && ip -o route get 10.1.0.3' |
    sed 's/ uid .*//; s/ *$//'
} >"$dir/observed"
cat "$dir/observed"
sed -n '/^# Output:/,/^#$/s/^#   //p' "$0" >"$dir/expected"
diff "$dir/expected" "$dir/observed" || { echo "the behaviour has changed: < expected, > observed" >&2; exit 1; }
