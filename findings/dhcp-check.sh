#!/bin/sh
# dhcp-check.sh: does the CNI plugin dhcp allocate by CHECK?
#
# Version: plugins/ipam/dhcp of github.com/containernetworking/plugins v1.10.0, with isc-dhcp-server 4.4.3 (or the
# installed one, whose version is printed).
#
# One would guess: no. CHECK asks whether a container is as ADD has left it, and must fail for one that has never been
# added, or was deleted (CNI specification, CHECK).
#
# Observed: CHECK is an ADD whose result is thrown away (cmdCheck in main.go calls DHCP.Allocate, as cmdAdd does). It
# leases an address for a container of which the plugin's daemon knows nothing, whatever prevResult says, succeeds, and
# keeps the lease until a DEL, which a runtime has no reason to call. A CHECK that comes after the DEL does so, too.
#
# Output:
#   ADD a: exit status 0, leases of a
#   CHECK b, never added, with 10.99.0.1 in prevResult: exit status 0, leases of a b
#   DEL a: exit status 0, leases of b
#   CHECK a, deleted, with 10.99.0.1 in prevResult: exit status 0, leases of a b
#
# Usage: dhcp-check.sh. It needs root, Linux network namespaces, ip, go and isc-dhcp-server's dhcpd in PATH. The exit status
# is 1 if the behaviour differs from the output above, and 2 if something is missing.
set -eu
[ "$(id -u)" = 0 ] || { echo "missing: root, to create network namespaces" >&2; exit 2; }
for program in ip go dhcpd; do
  command -v $program >/dev/null || { echo "missing: $program" >&2; exit 2; }
done
tmp=$(mktemp -d)
server=dhcpcheck-s$$ client=dhcpcheck-c$$ processes=
teardown() {
  [ -z "$processes" ] || kill $processes
  wait
  for namespace in $client $server; do
    ip netns del $namespace 2>/dev/null || true
  done
  rm -rf "$tmp"
}
trap teardown EXIT
GOBIN=$tmp GOFLAGS='' GO111MODULE=on CGO_ENABLED=0 go install github.com/containernetworking/plugins/plugins/ipam/dhcp@v1.10.0 || exit 2

# wait_for repeats a command for at most 10 s until it succeeds.
wait_for() {
  for _ in $(seq 100); do
    "$@" 2>/dev/null && return
    sleep 0.1
  done
  echo "timed out: $*" >&2
  exit 2
}

# call TEXT VERB ID KEY runs the plugin, with a further key of the configuration, and prints a line of the output. DEL waits
# for the server's file, because a release is a datagram without an answer.
call() {
  status=0
  printf '{"cniVersion":"1.0.0","name":"net","type":"none","ipam":{"type":"dhcp","daemonSocketPath":"%s"}%s}' "$tmp/socket" "$4" |
    CNI_COMMAND=$2 CNI_CONTAINERID=$3 CNI_NETNS=/run/netns/$client CNI_IFNAME=eth0 CNI_PATH=$tmp \
      "$tmp/dhcp" >"$tmp/stdout" || status=$?
  [ "$2" != DEL ] || wait_for grep -q 'binding state free' "$tmp/leases"
  leases=$(awk '
    $1 == "lease" { address = $2 }
    $1 == "binding" { state[address] = $3 }
    $1 == "uid" { split($2, id, "[0/]"); client[address] = id[4] }
    END { for (address in state) if (state[address] == "active;") print client[address] }' "$tmp/leases" | sort | xargs)
  echo "$1: exit status $status, leases of $leases"
}

ip netns add $server
ip netns add $client
ip -n $server link add server0 type veth peer name eth0 netns $client
ip -n $server addr add 10.77.0.1/24 dev server0
ip -n $server link set server0 up
ip -n $client link set eth0 up
# From v1.10.0 on, DEL releases only an address that is local.
for host in 10 11 12; do
  ip -n $client addr add 10.77.0.$host/24 dev eth0
done
cat >"$tmp/dhcpd.conf" <<CONF
ping-check false;
authoritative;
default-lease-time 3600;
subnet 10.77.0.0 netmask 255.255.255.0 { range 10.77.0.10 10.77.0.12; option routers 10.77.0.1; }
CONF
: >"$tmp/leases"
ip netns exec $server dhcpd -4 -f -q -cf "$tmp/dhcpd.conf" -lf "$tmp/leases" -pf "$tmp/pid" server0 2>"$tmp/dhcpd.log" &
processes=$!
"$tmp/dhcp" daemon -socketpath "$tmp/socket" -timeout 3s -resendtimeout 6s >"$tmp/daemon.log" 2>&1 &
processes="$processes $!"
wait_for test -S "$tmp/socket"
wait_for test -s "$tmp/pid"

dhcpd --version 2>&1 | sed 's/^/# /'
other=',"prevResult":{"cniVersion":"1.0.0","ips":[{"address":"10.99.0.1/24"}]}'
{
  call 'ADD a' ADD a ''
  call 'CHECK b, never added, with 10.99.0.1 in prevResult' CHECK b "$other"
  call 'DEL a' DEL a ''
  call 'CHECK a, deleted, with 10.99.0.1 in prevResult' CHECK a "$other"
} >"$tmp/observed"
cat "$tmp/observed"
sed -n '/^# Output:/,/^#$/s/^#   //p' "$0" >"$tmp/expected"
diff "$tmp/expected" "$tmp/observed" || { echo "the behaviour has changed: < expected, > observed" >&2; exit 1; }
