#!/bin/sh
# dhcp-lost-lease.sh: what does the CNI plugin dhcp do when a container cannot keep its lease?
#
# Version: plugins/ipam/dhcp of github.com/containernetworking/plugins v1.10.0, with isc-dhcp-server 4.4.3 (or the
# installed one, whose version is printed). The container's eth0 also has addresses that are not from DHCP.
#
# One would guess: it removes the address, or leaves it, and CHECK fails from then on. A DHCP client must stop to use an
# address whose lease has ended (RFC 2131, 4.4.5); other addresses are not affected.
#
# Observed: if the server refuses to renew the address, because its range has moved or its leases were lost, the plugin's
# daemon leases another one, which only its log shows: eth0 keeps the first address, a CHECK that names it succeeds, and
# DEL will release the other one. If no server answers until the lease has ended, the daemon sets the interface down. The
# address of the lease stays on it, while all routes through it and all its IPv6 addresses are removed for good: setting
# it up again does not bring them back (maintain and downIface in lease.go). A namespace whose interface serves several
# leases loses all of them with the first one.
#
# Output:
#   range moved: ADD 10.77.0.10, later CHECK of 10.77.0.10: exit status 0, ADD again 10.77.0.20
#   range moved: eth0 UP 10.77.0.10/24 10.88.0.5/24 fd00:88::5/64, routes via 10.77.0.1 fd00:88::1
#   no server: eth0 DOWN 10.77.0.10/24 10.88.0.5/24, routes none
#   no server, eth0 set up again: eth0 UP 10.77.0.10/24 10.88.0.5/24, routes none
#
# Usage: dhcp-lost-lease.sh. It needs root, Linux network namespaces, ip, go and isc-dhcp-server's dhcpd in PATH, and takes
# half a minute after the download. The exit status is 1 if the behaviour differs from the output above, and 2 if
# something is missing.
set -eu
[ "$(id -u)" = 0 ] || { echo "missing: root, to create network namespaces" >&2; exit 2; }
for program in ip go dhcpd; do
  command -v $program >/dev/null || { echo "missing: $program" >&2; exit 2; }
done
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
GOBIN=$tmp GOFLAGS='' GO111MODULE=on CGO_ENABLED=0 go install github.com/containernetworking/plugins/plugins/ipam/dhcp@v1.10.0 || exit 2

# wait_for repeats a command for at most 40 s until it succeeds.
wait_for() {
  for _ in $(seq 400); do
    "$@" 2>/dev/null && return
    sleep 0.1
  done
  echo "timed out: $*" >&2
  return 1
}

# serve RANGE starts a server without leases.
serve() {
  cat >"$dir/dhcpd.conf" <<CONF
ping-check false;
authoritative;
min-lease-time 10; default-lease-time 10; max-lease-time 10;
subnet 10.77.0.0 netmask 255.255.255.0 { range $1; option routers 10.77.0.1; }
CONF
  : >"$dir/leases"
  ip netns exec $server dhcpd -4 -f -q -cf "$dir/dhcpd.conf" -lf "$dir/leases" -pf "$dir/pid" server0 2>"$dir/dhcpd.log" &
  dhcpd=$!
  wait_for test -s "$dir/pid"
}

# call VERB KEY runs the plugin, with a further key of the configuration, and prints the address.
call() {
  printf '{"cniVersion":"1.0.0","name":"net","type":"none","ipam":{"type":"dhcp","daemonSocketPath":"%s"}%s}' "$dir/socket" "$2" |
    CNI_COMMAND=$1 CNI_CONTAINERID=example CNI_NETNS=/run/netns/$client CNI_IFNAME=eth0 CNI_PATH=$tmp \
      "$tmp/dhcp" >"$dir/stdout" || return
  sed -n 's|.*"address": "\(.*\)/.*|\1|p' "$dir/stdout"
}

# show prints the container's interface.
show() {
  routes=$({ ip -n $client route; ip -n $client -6 route; } | sed -n 's/.* via \([^ ]*\).*/\1/p' | xargs)
  addresses=$(ip -n $client -o addr show dev eth0 scope global | awk '{ print $4 }' | xargs)
  echo "eth0 $(ip -n $client -br link show dev eth0 | awk '{ print $2 }') $addresses, routes${routes:+ via} ${routes:-none}"
}

is_up() { ip -n $client -br link show dev eth0 | grep -q ' UP '; }

# observe FUNCTION runs it with a server, the plugin's daemon, and a container whose interface has its lease.
observe() {
  dir=$tmp/$1 server=dhcplost-s$$-$1 client=dhcplost-c$$-$1
  mkdir "$dir"
  ip netns add $server
  ip netns add $client
  ip -n $server link add server0 type veth peer name eth0 netns $client
  ip -n $server addr add 10.77.0.1/24 dev server0
  ip -n $server link set server0 up
  ip -n $client link set eth0 up
  serve 10.77.0.10
  "$tmp/dhcp" daemon -socketpath "$dir/socket" -timeout 1s -resendmax 1s -resendtimeout 2s >"$dir/daemon.log" 2>&1 &
  daemon=$!
  wait_for test -S "$dir/socket"
  address=$(call ADD '')
  ip -n $client addr add "$address/24" dev eth0
  ip -n $client addr add 10.88.0.5/24 dev eth0
  ip -n $client addr add fd00:88::5/64 dev eth0 nodad
  ip -n $client route add default via 10.77.0.1
  ip -n $client -6 route add default via fd00:88::1
  kill $dhcpd
  "$1" >"$dir/observed" || cat "$dir"/*.log >&2
  kill $daemon $dhcpd 2>/dev/null || true
  wait
  ip netns del $client
  ip netns del $server
}

moved() {
  rm -f "$dir/pid"
  serve 10.77.0.20
  wait_for grep -q 'lease rebound' "$dir/daemon.log"
  status=0
  call CHECK ",\"prevResult\":{\"cniVersion\":\"1.0.0\",\"ips\":[{\"address\":\"$address/24\"}]}" || status=$?
  echo "range moved: ADD $address, later CHECK of $address: exit status $status, ADD again $(call ADD '')"
  echo "range moved: $(show)"
}

away() {
  wait_for grep -q 'interface DOWN' "$dir/daemon.log"
  echo "no server: $(show)"
  ip -n $client link set eth0 up
  wait_for is_up
  echo "no server, eth0 set up again: $(show)"
}

observe moved &
observe away &
wait
dhcpd --version 2>&1 | sed 's/^/# /'
cat "$tmp/moved/observed" "$tmp/away/observed" >"$tmp/result"
cat "$tmp/result"
sed -n '/^# Output:/,/^#$/s/^#   //p' "$0" >"$tmp/expected"
diff "$tmp/expected" "$tmp/result" || { echo "the behaviour has changed: < expected, > observed" >&2; exit 1; }
