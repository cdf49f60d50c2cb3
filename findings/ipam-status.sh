#!/bin/sh
# ipam-status.sh: does STATUS of an IPAM plugin tell whether ADD can succeed?
#
# Version: plugins/ipam/host-local and dhcp of github.com/containernetworking/plugins v1.10.0, which list CNI
# 1.1.0, the version that introduced STATUS.
#
# One would guess: yes. The specification says that a plugin must return an error if it is not available,
# that is, not ready to service ADD, and a runtime makes the node "not ready" by it.
#
# Observed: STATUS succeeds with a configuration without any range or address, and without the daemon of
# dhcp, where each ADD fails. It does not check what ADD needs (cmdStatus is empty or only parses).
#
# Output:
#   host-local without ranges: STATUS 0, ADD 1: no IP ranges specified
#   host-local with a full range: STATUS 0, ADD 1: failed to allocate for range 0: no IP addresses available in range set: 10.1.0.1-10.1.0.2
#   dhcp without its daemon: STATUS 0, ADD 1: error dialing DHCP daemon: dial unix DIR/none.sock: connect: no such file or directory
#
# Usage: ipam-status.sh. It needs go in PATH. The exit status is 1 if the behaviour differs from the output
# above, and 2 if something is missing.
set -eu
command -v go >/dev/null || { echo "missing: go" >&2; exit 2; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
for plugin in host-local dhcp; do
  GOBIN=$dir GOFLAGS='' GO111MODULE=on CGO_ENABLED=0 go install "github.com/containernetworking/plugins/plugins/ipam/$plugin@v1.10.0" || exit 2
done

# call VERB ID PLUGIN IPAM runs a plugin, with further keys of its ipam object.
call() {
  printf '{"cniVersion":"1.1.0","name":"net","type":"ptp","ipam":{"type":"%s"%s}}' "$3" "$4" |
    CNI_COMMAND=$1 CNI_CONTAINERID=$2 CNI_IFNAME=eth0 CNI_NETNS=/run/netns/none CNI_PATH=$dir "$dir/$3"
}

# observe TEXT PLUGIN IPAM prints a line of the output.
observe() {
  status=0 add=0
  call STATUS '' "$2" "$3" >"$dir/out" || status=$?
  call ADD b "$2" "$3" >"$dir/out" || add=$?
  echo "$1: STATUS $status, ADD $add: $(sed -n 's/^ *"msg": "\(.*\)"$/\1/p' "$dir/out" | sed "s|$dir|DIR|")"
}

{
  observe "host-local without ranges" host-local ",\"dataDir\":\"$dir/leases\""
  full=",\"dataDir\":\"$dir/leases\",\"ranges\":[[{\"subnet\":\"10.1.0.0/30\"}]]"
  call ADD a host-local "$full" >/dev/null
  observe "host-local with a full range" host-local "$full"
  observe "dhcp without its daemon" dhcp ",\"daemonSocketPath\":\"$dir/none.sock\""
} >"$dir/observed"
cat "$dir/observed"
sed -n '/^# Output:/,/^#$/s/^#   //p' "$0" >"$dir/expected"
diff "$dir/expected" "$dir/observed" || { echo "the behaviour has changed: < expected, > observed" >&2; exit 1; }
