#!/bin/sh
# static-no-address.sh: does the CNI plugin static refuse a configuration without addresses?
#
# Version: plugins/ipam/static of github.com/containernetworking/plugins v1.10.0, beside host-local of it.
#
# One would guess: yes, as host-local does without ranges. A successful ADD of an IPAM plugin means that
# there is an address.
#
# Observed: ADD succeeds with a result without "ips", so a caller that takes the first address of a
# successful result has none. A misspelt key ("address") has the same effect, because unknown keys are
# ignored.
#
# Output:
#   static, no addresses: exit status 0: { "cniVersion": "1.0.0" }
#   static, "address": exit status 0: { "cniVersion": "1.0.0" }
#   host-local, no ranges: exit status 1: { "code": 999, "msg": "no IP ranges specified" }
#
# Usage: static-no-address.sh. It needs go in PATH. The exit status is 1 if the behaviour differs from the
# output above, and 2 if something is missing.
set -eu
command -v go >/dev/null || { echo "missing: go" >&2; exit 2; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
for plugin in host-local static; do
  GOBIN=$dir GOFLAGS='' GO111MODULE=on CGO_ENABLED=0 go install "github.com/containernetworking/plugins/plugins/ipam/$plugin@v1.10.0" || exit 2
done

# add TEXT PLUGIN IPAM prints a line of the output.
add() {
  status=0
  out=$(printf '{"cniVersion":"1.0.0","name":"net","type":"ptp","ipam":{"type":"%s"%s}}' "$2" "$3" |
    CNI_COMMAND=ADD CNI_CONTAINERID=example CNI_IFNAME=eth0 CNI_NETNS=/run/netns/none CNI_PATH=$dir "$dir/$2") || status=$?
  echo "$1: exit status $status: $(echo "$out" | tr -s ' \n' ' ' | sed 's/ $//')"
}

{
  add 'static, no addresses' static ''
  add 'static, "address"' static ',"address":[{"address":"10.1.0.2/24"}]'
  add 'host-local, no ranges' host-local ",\"dataDir\":\"$dir/leases\""
} >"$dir/observed"
cat "$dir/observed"
sed -n '/^# Output:/,/^#$/s/^#   //p' "$0" >"$dir/expected"
diff "$dir/expected" "$dir/observed" || { echo "the behaviour has changed: < expected, > observed" >&2; exit 1; }
