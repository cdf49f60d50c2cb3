#!/bin/sh
# host-local-gateway.sh: does the CNI plugin host-local accept an IPv6 link-local gateway?
#
# Versions: plugins/ipam/host-local of github.com/containernetworking/plugins v1.9.1 and v1.10.0.
#
# One would guess: yes, because a link-local address is on the link of every subnet, and router
# advertisements announce no other. And DEL frees a lease in any case, because it needs only the
# container ID.
#
# Observed: v1.9.1 accepts it. v1.10.0 refuses each gateway that is not in the subnet, for every verb,
# so after an upgrade it cannot release what v1.9.1 has leased with the same configuration
# (Canonicalize in backend/allocator/range.go).
#
# Output:
#   v1.9.1 ADD, exit status 0: { "cniVersion": "1.0.0", "ips": [ { "address": "fd00:10::1/64", "gateway": "fe80::1" } ] }
#   v1.10.0 ADD, exit status 1: { "code": 999, "msg": "invalid range set 0: gateway fe80::1 not in network fd00:10::/64" }
#   v1.10.0 CHECK and DEL: the same
#   leased: fd00:10::1
#   v1.9.1 DEL, exit status 0:
#
# Usage: host-local-gateway.sh. It needs go in PATH. The exit status is 1 if the behaviour differs from
# the output above, and 2 if something is missing.
set -eu
command -v go >/dev/null || { echo "missing: go" >&2; exit 2; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
for version in v1.9.1 v1.10.0; do
  GOBIN=$dir/$version GOFLAGS='' GO111MODULE=on CGO_ENABLED=0 go install "github.com/containernetworking/plugins/plugins/ipam/host-local@$version" || exit 2
done

# call VERSION VERB prints what host-local prints, in one line, and its exit status.
call() {
  status=0
  out=$(printf '{"cniVersion":"1.0.0","name":"net","type":"ptp","ipam":{"type":"host-local","dataDir":"%s/leases",
    "ranges":[[{"subnet":"fd00:10::/64","gateway":"fe80::1"}]]}}' "$dir" |
    CNI_COMMAND=$2 CNI_CONTAINERID=example CNI_IFNAME=eth0 CNI_NETNS=/run/netns/none CNI_PATH=$dir "$dir/$1/host-local") || status=$?
  echo "$1 $2, exit status $status: $(echo "$out" | tr -s ' \n' ' ')"
}

# expect TEXT COMMAND... runs a command whose output must have the text.
expect() {
  text=$1
  shift
  out=$("$@")
  echo "$out"
  case $out in *"$text"*) ;; *) echo "expected: $text" >&2; exit 1 ;; esac
}

expect '"gateway": "fe80::1"' call v1.9.1 ADD
refused='exit status 1: { "code": 999, "msg": "invalid range set 0: gateway fe80::1 not in network fd00:10::/64"'
for verb in ADD CHECK DEL; do
  expect "$refused" call v1.10.0 $verb
done
expect fd00:10::1 echo "leased: $(cd leases/net && ls -d fd00*)"
expect 'exit status 0' call v1.9.1 DEL
