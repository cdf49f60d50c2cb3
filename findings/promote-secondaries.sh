#!/bin/sh
# promote-secondaries.sh: does removing one address of an interface leave the others?
#
# Version: the running Linux, which is printed; observed with 6.18.
#
# One would guess: yes. Addresses are added and removed one by one, by netlink messages that name one
# address each.
#
# Observed: a second IPv4 address of the same subnet is a secondary of the first one, and the kernel
# removes it together with the first, unless promote_secondaries is set. A program that moves a gateway or a
# router address so loses every later IPv4 address of that subnet, but no IPv6 address. The kernel's default
# is 0, and distributions set 1, so it depends on the machine and on the namespace; the script sets both.
#
# Output:
#   promote_secondaries 0: 10.1.0.1 removed, left: 10.2.0.1/24 fd00:10::2/64
#   promote_secondaries 1: 10.1.0.1 removed, left: 10.1.0.2/24 10.2.0.1/24 fd00:10::2/64
#
# Usage: promote-secondaries.sh. It needs root, ip and unshare in PATH. The exit status is 1 if the behaviour
# differs from the output above, and 2 if something is missing.
set -eu
for program in ip unshare; do
  command -v $program >/dev/null || { echo "missing: $program" >&2; exit 2; }
done
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
uname -r | sed 's/^/# Linux /'
for promote in 0 1; do
  printf 'promote_secondaries %s: 10.1.0.1 removed, left: ' $promote
  unshare -n sh -c '
    ip link add eth0 type veth
    echo '$promote' >/proc/sys/net/ipv4/conf/all/promote_secondaries
    echo '$promote' >/proc/sys/net/ipv4/conf/eth0/promote_secondaries
    for address in 10.1.0.1/24 10.1.0.2/24 10.2.0.1/24 fd00:10::1/64 fd00:10::2/64; do
      ip addr add $address dev eth0
    done
    ip addr del 10.1.0.1/24 dev eth0
    ip addr del fd00:10::1/64 dev eth0
    ip -o addr show dev eth0' | awk '{ print $4 }' | sort | xargs
done >"$dir/observed"
cat "$dir/observed"
sed -n '/^# Output:/,/^#$/s/^#   //p' "$0" >"$dir/expected"
diff "$dir/expected" "$dir/observed" || { echo "the behaviour has changed: < expected, > observed" >&2; exit 1; }
