#!/bin/sh
# static-requested.sh: what does static return for a requested address?
#
# Version: plugins/ipam/static of github.com/containernetworking/plugins v1.10.0.
#
# One would guess: the requested one instead of the configured one, whichever of the three ways of CNI requests it: IP in
# CNI_ARGS, "ips" in args.cni, or the capability "ips" in runtimeConfig.
#
# Observed: the last two replace the configured addresses. IP in CNI_ARGS is added to them, so the container has both, and
# each container that requests one shares the configured address with all others (LoadIPAMConfig in
# plugins/ipam/static/main.go). The gateway of a replaced address is lost; GATEWAY in CNI_ARGS sets one for the added.
#
# Output:
#   no request: 10.1.0.2/24 via 10.1.0.1
#   runtimeConfig: 10.1.0.9/24
#   args.cni: 10.1.0.9/24
#   CNI_ARGS: 10.1.0.2/24 via 10.1.0.1, 10.1.0.9/24 via 10.1.0.1
#
# Usage: static-requested.sh. It needs go in PATH. The exit status is 1 if the behaviour differs from the output above,
# and 2 if something is missing.
set -eu
command -v go >/dev/null || { echo "missing: go" >&2; exit 2; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
GOBIN=$dir GOFLAGS='' GO111MODULE=on CGO_ENABLED=0 go install github.com/containernetworking/plugins/plugins/ipam/static@v1.10.0 || exit 2

# add NAME KEYS CNI_ARGS runs an ADD with more keys of the configuration, and prints the addresses.
add() {
  addresses=$(printf '{"cniVersion":"1.0.0","name":"net","type":"ptp",%s"ipam":{"type":"static","addresses":[{"address":"10.1.0.2/24","gateway":"10.1.0.1"}]}}' "$2" |
    CNI_COMMAND=ADD CNI_CONTAINERID=example CNI_IFNAME=eth0 CNI_NETNS=/run/netns/none CNI_PATH=$dir CNI_ARGS=$3 "$dir/static" |
    tr -d ' \n' | sed 's/.*"ips":\[\(.*\)\].*/\1/; s/},{/, /g; s/[{}]//g; s/"address":"\([^"]*\)"/\1/g; s/,"gateway":"\([^"]*\)"/ via \1/g')
  echo "$1: $addresses"
}

{
  add 'no request' '' ''
  add runtimeConfig '"runtimeConfig":{"ips":["10.1.0.9/24"]},' ''
  add args.cni '"args":{"cni":{"ips":["10.1.0.9/24"]}},' ''
  add CNI_ARGS '' 'IP=10.1.0.9/24;GATEWAY=10.1.0.1'
} >"$dir/observed"
cat "$dir/observed"
sed -n '/^# Output:/,/^#$/s/^#   //p' "$0" >"$dir/expected"
diff "$dir/expected" "$dir/observed" || { echo "the behaviour has changed: < expected, > observed" >&2; exit 1; }
