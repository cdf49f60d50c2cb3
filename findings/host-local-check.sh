#!/bin/sh
# host-local-check.sh: does host-local's CHECK fail for an address that another container has?
#
# Version: plugins/ipam/host-local of github.com/containernetworking/plugins v1.10.0.
#
# One would guess: yes. CHECK gets the result of the ADD in prevResult, and CNI says that a plugin must return an error if
# a resource of it is missing or in an invalid state (specification, CHECK).
#
# Observed: CHECK succeeds if any file in the directory of the network names the container and the interface; it reads
# neither the addresses of prevResult nor the name of the file (cmdCheck in main.go, FindByKey in
# backend/disk/backend.go). So a dual-stack container that has lost its IPv4 lease passes as long as it has the IPv6
# lease, also when another container has got the address, and so does one that has another address than in prevResult.
#
# Output:
#   prevResult of a: 10.1.0.1 fd00:10::1
#   ADD b, after the loss of the IPv4 lease of a: 10.1.0.1 fd00:10::2
#   CHECK a: exit status 0
#   CHECK a, with fd00:10::2 alone in prevResult: exit status 0
#   CHECK a, without any lease: exit status 1
#
# Usage: host-local-check.sh. It needs go in PATH. The exit status is 1 if the behaviour differs from the output above, and
# 2 if something is missing.
set -eu
command -v go >/dev/null || { echo "missing: go" >&2; exit 2; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
GOBIN=$dir GOFLAGS='' GO111MODULE=on CGO_ENABLED=0 go install github.com/containernetworking/plugins/plugins/ipam/host-local@v1.10.0 || exit 2

# call VERB ID prevResult runs host-local with one IPv4 address and a range of IPv6.
call() {
  printf '{"cniVersion":"1.0.0","name":"net","type":"ptp","ipam":{"type":"host-local","dataDir":"%s/leases","ranges":[[{"subnet":"10.1.0.0/30","rangeStart":"10.1.0.1","rangeEnd":"10.1.0.1","gateway":"10.1.0.2"}],[{"subnet":"fd00:10::/64","gateway":"fd00:10::ff"}]]}%s}' "$dir" "$3" |
    CNI_COMMAND=$1 CNI_CONTAINERID=$2 CNI_IFNAME=eth0 CNI_NETNS=/run/netns/none CNI_PATH=$dir "$dir/host-local"
}

addresses() { sed -n 's|.*"address": "\(.*\)/.*|\1|p' | xargs; }

# check TEXT prevResult prints the outcome of a CHECK of a.
check() {
  status=0
  call CHECK a ",\"prevResult\":$2" >/dev/null || status=$?
  echo "CHECK a$1: exit status $status"
}

{
  result=$(call ADD a '')
  echo "prevResult of a: $(echo "$result" | addresses)"
  rm "$dir/leases/net/10.1.0.1"
  echo "ADD b, after the loss of the IPv4 lease of a: $(call ADD b '' | addresses)"
  check '' "$result"
  check ', with fd00:10::2 alone in prevResult' '{"cniVersion":"1.0.0","ips":[{"address":"fd00:10::2/64"}]}'
  rm "$dir/leases/net/fd00:10::1"
  check ', without any lease' "$result"
} >"$dir/observed"
cat "$dir/observed"
sed -n '/^# Output:/,/^#$/s/^#   //p' "$0" >"$dir/expected"
diff "$dir/expected" "$dir/observed" || { echo "the behaviour has changed: < expected, > observed" >&2; exit 1; }
