#!/bin/sh
# dhcp-namespace.sh: does the CNI plugin dhcp stop to renew the lease of a container whose network namespace is gone?
#
# Version: plugins/ipam/dhcp of github.com/containernetworking/plugins v1.10.0, with isc-dhcp-server 4.4.3 (or the
# installed one, whose version is printed).
#
# One would guess: yes. A namespace without processes that is unmounted ("ip netns del", or a runtime that has lost its state
# and never calls DEL) is destroyed with its interfaces, and the plugin's daemon ends a lease whose interface no longer
# exists (checkLinkExistsWithBackoff in lease.go).
#
# Observed: the daemon has a thread in the namespace for each lease (AcquireLease in lease.go), which keeps the namespace
# and its interface. It answers ARP for the address, the lease is renewed without end, and the other end of the veth
# pair stays on the host, until a DEL, or the end of the daemon. For a DEL an empty CNI_NETNS is enough: it releases
# the lease, and the namespace is destroyed.
#
# Output:
#   ADD: lease active, interface exists
#   namespace deleted, two lease times later: lease active, renewals: several, interface exists, ARP answered
#   DEL without CNI_NETNS: exit status 0, lease free, interface gone
#
# Usage: dhcp-namespace.sh. It needs root, Linux network namespaces, ip, go, bash and isc-dhcp-server's dhcpd in PATH, and takes
# half a minute after the download. The exit status is 1 if the behaviour differs from the output above, and 2 if
# something is missing.
set -eu
[ "$(id -u)" = 0 ] || { echo "missing: root, to create network namespaces" >&2; exit 2; }
for program in ip go dhcpd bash; do
  command -v $program >/dev/null || { echo "missing: $program" >&2; exit 2; }
done
tmp=$(mktemp -d)
server=dhcpns-s$$ client=dhcpns-c$$ processes=
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

# wait_for repeats a command for at most 40 s until it succeeds.
wait_for() {
  for _ in $(seq 400); do
    "$@" 2>/dev/null && return
    sleep 0.1
  done
  echo "timed out: $*" >&2
  exit 2
}

# call VERB NETNS runs the plugin.
call() {
  printf '{"cniVersion":"1.0.0","name":"net","type":"none","ipam":{"type":"dhcp","daemonSocketPath":"%s"}}' "$tmp/socket" |
    CNI_COMMAND=$1 CNI_CONTAINERID=example CNI_NETNS=$2 CNI_IFNAME=eth0 CNI_PATH=$tmp "$tmp/dhcp" >"$tmp/stdout"
}

# lease prints the last binding state of the address.
lease() { awk '$1 == "binding" { state = $3 } END { sub(";", "", state); print state }' "$tmp/leases"; }

# interface prints whether the server's end of the veth pair exists, which is destroyed with the container's.
interface() { ip -n $server link show dev server0 >/dev/null 2>&1 && echo exists || echo gone; }

renewals() { grep -c 'lease renewed' "$tmp/daemon.log" || true; }
renewed() { [ "$(renewals)" -ge 4 ]; }  # each after half of the lease time
is_free() { [ "$(lease)" = free ]; }
is_gone() { [ "$(interface)" = gone ]; }
resolved() { ip -n $server neigh show to 10.77.0.10 | grep -q lladdr; }

ip netns add $server
ip netns add $client
ip -n $server link add server0 type veth peer name eth0 netns $client
ip -n $server addr add 10.77.0.1/24 dev server0
ip -n $server link set server0 up
ip -n $client link set eth0 up
cat >"$tmp/dhcpd.conf" <<CONF
ping-check false;
authoritative;
min-lease-time 10; default-lease-time 10; max-lease-time 10;
subnet 10.77.0.0 netmask 255.255.255.0 { range 10.77.0.10; option routers 10.77.0.1; }
CONF
: >"$tmp/leases"
ip netns exec $server dhcpd -4 -f -q -cf "$tmp/dhcpd.conf" -lf "$tmp/leases" -pf "$tmp/pid" server0 2>"$tmp/dhcpd.log" &
processes=$!
"$tmp/dhcp" daemon -socketpath "$tmp/socket" -timeout 1s -resendtimeout 2s >"$tmp/daemon.log" 2>&1 &
processes="$processes $!"
wait_for test -S "$tmp/socket"
wait_for test -s "$tmp/pid"

dhcpd --version 2>&1 | sed 's/^/# /'
{
  call ADD /run/netns/$client
  ip -n $client addr add 10.77.0.10/24 dev eth0 # as the plugin does that delegates to dhcp
  echo "ADD: lease $(lease), interface $(interface)"
  ip netns del $client
  wait_for renewed
  ip -n $server neigh flush dev server0
  ip netns exec $server bash -c 'echo >/dev/udp/10.77.0.10/9' # it looks for the address by ARP
  wait_for resolved
  echo "namespace deleted, two lease times later: lease $(lease), renewals: several, interface $(interface), ARP answered"
  status=0
  call DEL '' || status=$?
  wait_for is_free
  wait_for is_gone
  echo "DEL without CNI_NETNS: exit status $status, lease $(lease), interface $(interface)"
} >"$tmp/observed"
cat "$tmp/observed"
sed -n '/^# Output:/,/^#$/s/^#   //p' "$0" >"$tmp/expected"
diff "$tmp/expected" "$tmp/observed" || { echo "the behaviour has changed: < expected, > observed" >&2; exit 1; }
