#!/bin/sh
# dhcp-renew.sh: does the CNI plugin dhcp renew a lease whose address is not on the interface?
#
# Versions: plugins/ipam/dhcp of github.com/containernetworking/plugins v1.9.1 and v1.10.0, with isc-dhcp-server 4.4.3 (or
# the installed one, whose version is printed).
#
# One would guess: yes. Its daemon keeps the lease until DEL, and gets the lease itself through a raw socket, for which
# no address is needed. CNI runs the IPAM plugin before the interface has an address, if it ever gets it: a caller may
# use the address elsewhere.
#
# Observed: the server accepts each renewal and sends its answer to the leased address, for which no host answers ARP, so
# the daemon does not see it. It repeats the request from the half of each lease until 85 % of it, and then gets a lease
# anew by DHCPDISCOVER, to which any server may offer any address (maintain in lease.go). That the address is local on
# another interface of the namespace, as v1.10.0 needs it for the release, does not help as long as the namespace does not
# answer ARP for it.
#
# Output:
#   v1.9.1   on the interface  renewals answered: 1, seen: 1, DHCPDISCOVER: 1
#   v1.9.1   nowhere           renewals answered: several, seen: 0, DHCPDISCOVER: 2
#   v1.10.0  on the interface  renewals answered: 1, seen: 1, DHCPDISCOVER: 1
#   v1.10.0  nowhere           renewals answered: several, seen: 0, DHCPDISCOVER: 2
#   v1.10.0  local, no ARP     renewals answered: several, seen: 0, DHCPDISCOVER: 2
#
# Usage: dhcp-renew.sh. It needs root, Linux network namespaces, ip, sysctl, go and isc-dhcp-server's dhcpd in PATH, and
# takes half a minute after the download. The exit status is 1 if the behaviour differs from the output above, and 2 if
# something is missing.
set -eu
[ "$(id -u)" = 0 ] || { echo "missing: root, to create network namespaces" >&2; exit 2; }
for program in ip sysctl go dhcpd; do
  command -v $program >/dev/null || { echo "missing: $program" >&2; exit 2; }
done
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
for version in v1.9.1 v1.10.0; do
  GOBIN=$tmp/$version GOFLAGS='' GO111MODULE=on CGO_ENABLED=0 go install "github.com/containernetworking/plugins/plugins/ipam/dhcp@$version" || exit 2
done

# wait_for repeats a command for at most 40 s until it succeeds.
wait_for() {
  for _ in $(seq 400); do
    "$@" 2>/dev/null && return
    sleep 0.1
  done
  echo "timed out: $*" >&2
  return 1
}

# observe NUMBER VERSION PLACE prints to a file what happens until the lease is renewed or made anew.
observe() {
  dir=$tmp/$1 server=dhcprenew-s$1-$$ client=dhcprenew-c$1-$$
  mkdir "$dir"
  ip netns add $server
  ip netns add $client
  ip -n $server link add server0 type veth peer name eth0 netns $client
  ip -n $server addr add 10.77.0.1/24 dev server0
  ip -n $server link set server0 up
  ip -n $client link set eth0 up
  case $3 in
  'on the interface') ip -n $client addr add 10.77.0.10/24 dev eth0 ;;
  'local, no ARP')
    ip netns exec $client sysctl -qw net.ipv4.conf.all.arp_ignore=8 net.ipv4.conf.all.arp_announce=2
    ip -n $client link set lo up
    ip -n $client route add local 10.77.0.10 dev lo
    ip -n $client route add 10.77.0.0/24 dev eth0
    ;;
  esac
  cat >"$dir/dhcpd.conf" <<CONF
ping-check false;
authoritative;
min-lease-time 20; default-lease-time 20; max-lease-time 20;
subnet 10.77.0.0 netmask 255.255.255.0 { range 10.77.0.10; option routers 10.77.0.1; }
CONF
  : >"$dir/leases"
  ip netns exec $server dhcpd -4 -d -cf "$dir/dhcpd.conf" -lf "$dir/leases" -pf "$dir/pid" server0 2>"$dir/dhcpd.log" &
  processes=$!
  "$tmp/$2/dhcp" daemon -socketpath "$dir/socket" -timeout 1s -resendtimeout 3s >"$dir/daemon.log" 2>&1 &
  processes="$processes $!"
  wait_for test -S "$dir/socket" && wait_for test -s "$dir/pid" &&
    printf '{"cniVersion":"1.0.0","name":"net","type":"none","ipam":{"type":"dhcp","daemonSocketPath":"%s"}}' "$dir/socket" |
    CNI_COMMAND=ADD CNI_CONTAINERID=example CNI_NETNS=/run/netns/$client CNI_IFNAME=eth0 CNI_PATH=$tmp/$2 \
      "$tmp/$2/dhcp" >/dev/null &&
    wait_for grep -qE 'lease (renewed|rebound)' "$dir/daemon.log" || cat "$dir"/*.log >&2
  kill $processes
  wait
  ip netns del $client
  ip netns del $server
  # The request for an offer names the server in parentheses, a renewal does not.
  answered=$(grep -c '^DHCPREQUEST for 10.77.0.10 from' "$dir/dhcpd.log") || true
  [ "$answered" -lt 2 ] || answered=several
  printf '%-8s %-17s renewals answered: %s, seen: %s, DHCPDISCOVER: %s\n' "$2" "$3" "$answered" \
    "$(grep -c 'lease renewed' "$dir/daemon.log")" "$(grep -c '^DHCPDISCOVER' "$dir/dhcpd.log")" >"$dir/row"
}

observe 1 v1.9.1 'on the interface' &
observe 2 v1.9.1 nowhere &
observe 3 v1.10.0 'on the interface' &
observe 4 v1.10.0 nowhere &
observe 5 v1.10.0 'local, no ARP' &
wait
dhcpd --version 2>&1 | sed 's/^/# /'
cat "$tmp"/?/row >"$tmp/observed"
cat "$tmp/observed"
sed -n '/^# Output:/,/^#$/s/^#   //p' "$0" >"$tmp/expected"
diff "$tmp/expected" "$tmp/observed" || { echo "the behaviour has changed: < expected, > observed" >&2; exit 1; }
