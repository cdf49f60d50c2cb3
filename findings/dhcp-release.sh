#!/usr/bin/env bash
# dhcp-release.sh: does a DEL of the CNI plugin dhcp free the lease at the DHCP server?
#
# Versions: plugins/ipam/dhcp of github.com/containernetworking/plugins v1.9.1 and v1.10.0, with
# isc-dhcp-server 4.4.3 (or the installed one, whose version is printed).
#
# One would guess: DEL releases the lease, or fails. CNI runs the IPAM plugin without a promise that
# an interface in CNI_NETNS has its address.
#
# Observed: v1.10.0 sends DHCPRELEASE from a UDP socket that is bound to the leased address, in the
# namespace CNI_NETNS (release() in lease.go). A caller that runs IPAM without configuring the
# address gets success from DEL, a line in the log of the plugin's daemon, and a lease that stays
# until it expires. What fails is the bind, or, in a namespace that never had an address, where
# Linux permits the bind, the send. v1.9.1 uses a raw socket, and needs no address.
#
# It is enough that the address is local there: "ip route add local RANGE dev lo". arp_ignore=8
# keeps the namespace from answering ARP for the range. Without arp_announce=2 it announces the
# leased address by its own ARP requests, from the ADD on (it answers the server's messages by
# ICMP), so a gateway learns the wrong MAC.
#
# Output:
#   version  namespace             DEL      lease  ARP entry of the server's host, probed by it
#   v1.9.1   as it is              success  freed  none, FAILED
#   v1.10.0  as it is              success  kept   none, FAILED
#   v1.9.1   range local           success  freed  none, FAILED
#   v1.10.0  range local           success  freed  none, FAILED
#   v1.10.0  without arp_announce  success  freed  STALE
#
# Usage: dhcp-release.sh. It needs root, Linux network namespaces, ip, sysctl, go and
# isc-dhcp-server's dhcpd in PATH, and leaves nothing behind but Go's caches. The exit status is 1
# if the behaviour differs from the output above, and 2 if something is missing.
set -euo pipefail

missing() {
	echo "missing: $*" >&2
	exit 2
}
[ "$(id -u)" = 0 ] || missing "root, to create network namespaces"
for program in ip sysctl go dhcpd; do
	command -v "$program" >/dev/null || missing "$program (dhcpd is in isc-dhcp-server)"
done

tmp=$(mktemp -d)
server=dhcprelease-s$$ client=dhcprelease-c$$
daemon=

# teardown ends the processes and removes the namespaces of one run.
teardown() {
	[ -z "$daemon" ] || { kill "$daemon" && wait "$daemon"; } 2>/dev/null || true
	[ ! -s "$tmp/pid" ] || kill "$(cat "$tmp/pid")" 2>/dev/null || true
	daemon=
	rm -f "$tmp/pid" "$tmp/socket"
	ip netns del $client 2>/dev/null || true
	ip netns del $server 2>/dev/null || true
}
trap 'teardown; rm -rf "$tmp"' EXIT

for version in v1.9.1 v1.10.0; do
	GOBIN=$tmp/$version GOFLAGS='' GO111MODULE=on CGO_ENABLED=0 go install "github.com/containernetworking/plugins/plugins/ipam/dhcp@$version"
done

# wait_for repeats a command for at most 10 s until it succeeds.
wait_for() {
	for _ in $(seq 100); do
		"$@" && return
		sleep 0.1
	done
	echo "timed out: $*" >&2
	exit 2
}

# setup VERSION NAMESPACE starts server and daemon.
setup() {
	ip netns add $server
	ip netns add $client
	ip -n $server link add server0 type veth peer name eth0 netns $client
	ip -n $server addr add 10.77.0.1/24 dev server0
	ip -n $server link set server0 up
	ip -n $client link set eth0 up
	if [ "$2" != "as it is" ]; then
		ip netns exec $client sysctl -qw net.ipv4.conf.all.arp_ignore=8
		[ "$2" != "range local" ] || ip netns exec $client sysctl -qw net.ipv4.conf.all.arp_announce=2
		ip -n $client link set lo up
		ip -n $client route add local 10.77.0.8/29 dev lo
		ip -n $client route add 10.77.0.0/24 dev eth0
	fi
	cat >"$tmp/dhcpd.conf" <<-CONF
		ping-check false;
		authoritative;
		default-lease-time 3600;
		subnet 10.77.0.0 netmask 255.255.255.0 { range 10.77.0.10 10.77.0.12; option routers 10.77.0.1; }
	CONF
	: >"$tmp/leases"
	ip netns exec $server dhcpd -4 -q -cf "$tmp/dhcpd.conf" -lf "$tmp/leases" -pf "$tmp/pid" server0 2>"$tmp/dhcpd.log" ||
		{ cat "$tmp/dhcpd.log" >&2; exit 2; }
	"$tmp/$1/dhcp" daemon -socketpath "$tmp/socket" -timeout 3s -resendtimeout 6s >"$tmp/daemon.log" 2>&1 &
	daemon=$!
	wait_for test -S "$tmp/socket"
}

# cni VERSION VERB ID runs the plugin.
cni() {
	printf '{"cniVersion":"1.0.0","name":"net","type":"none","ipam":{"type":"dhcp","daemonSocketPath":"%s"}}' "$tmp/socket" |
		CNI_COMMAND=$2 CNI_CONTAINERID=$3 CNI_NETNS=/run/netns/$client CNI_IFNAME=eth0 CNI_PATH=$tmp/$1 "$tmp/$1/dhcp"
}

# lease ADDRESS prints whether the server still has the lease of the ID "first".
lease() {
	awk -v address="$1" '
		$1 == "lease" { found = $2 == address }
		found && $1 == "binding" { state = $3; id = "" }
		found && $1 == "uid" { id = $2 }
		END { print state == "active;" && id ~ /first/ ? "kept" : "freed" }' "$tmp/leases"
}

# neighbour ADDRESS prints the state in the ARP table of the server's host.
neighbour() {
	state=$(ip -n $server neigh show to "$1" nud all | awk '{ print $NF }')
	echo "${state:-none}"
}

resolved() { [ "$(neighbour "$1")" != INCOMPLETE ]; }

# observe VERSION NAMESPACE prints a row of the output.
observe() {
	setup "$1" "$2"
	address=$(cni "$1" ADD first | sed -n 's|.*"address": "\(.*\)/.*|\1|p')
	[ "$(lease "$address")" = kept ] || { echo "no lease after ADD" >&2; exit 2; }
	del=success
	cni "$1" DEL first || del=failure
	# The server handles messages in order: after the next lease it has handled a release.
	cni "$1" ADD second >/dev/null
	arp=$(neighbour "$address")
	if [ "$arp" = none ]; then
		ip netns exec $server bash -c "echo >/dev/udp/$address/9"
		wait_for resolved "$address"
		arp="$arp, $(neighbour "$address")"
	fi
	printf '%-8s %-21s %-8s %-6s %s\n' "$1" "$2" "$del" "$(lease "$address")" "$arp"
	sed -n 's/^.*failed to release/#   log of the daemon: failed to release/p' "$tmp/daemon.log" >>"$tmp/notes"
	teardown
}

dhcpd --version 2>&1 | sed 's/^/# /'
uname -r | sed 's/^/# Linux /'
{
	observe v1.9.1 "as it is"
	observe v1.10.0 "as it is"
	observe v1.9.1 "range local"
	observe v1.10.0 "range local"
	observe v1.10.0 "without arp_announce"
} >"$tmp/rows"
echo "version  namespace             DEL      lease  ARP entry of the server's host, probed by it"
cat "$tmp/rows" "$tmp/notes"

sed -n '/^# Output:/,/^#$/s/^#   \(v1\)/\1/p' "$0" >"$tmp/expected"
diff "$tmp/expected" "$tmp/rows" || { echo "the behaviour has changed: < expected, > observed" >&2; exit 1; }
