#!/bin/sh
# host-device-del.sh: does a DEL of an interface plugin free the address if the network namespace is gone?
#
# Version: the plugins of github.com/containernetworking/plugins v1.10.0 that delegate to an IPAM plugin, each with
# host-local of it, whose lease is made by an ADD of host-local with the same configuration.
#
# One would guess: yes, with any of them. The namespaces of all containers are gone after a reboot, a runtime then passes
# the path of one that does not exist, or none, and CNI says that DEL should succeed and release what can be released
# (specification, DEL).
#
# Observed: host-device ends before it calls its IPAM plugin: with success if CNI_NETNS is empty, so the runtime forgets
# the container, and otherwise with an error, as often as DEL is called. The address stays allocated in both cases
# (cmdDel in plugins/main/host-device/host-device.go). All the others call the IPAM plugin in spite of the namespace.
#
# Output:
#   bridge: CNI_NETNS empty: exit status 0, leases 0; missing: exit status 0, leases 0
#   dummy: CNI_NETNS empty: exit status 0, leases 0; missing: exit status 0, leases 0
#   host-device: CNI_NETNS empty: exit status 0, leases 1; missing: exit status 1, leases 1
#   ipvlan: CNI_NETNS empty: exit status 0, leases 0; missing: exit status 0, leases 0
#   macvlan: CNI_NETNS empty: exit status 0, leases 0; missing: exit status 0, leases 0
#   ptp: CNI_NETNS empty: exit status 0, leases 0; missing: exit status 0, leases 0
#   tap: CNI_NETNS empty: exit status 0, leases 0; missing: exit status 0, leases 0
#   vlan: CNI_NETNS empty: exit status 0, leases 0; missing: exit status 0, leases 0
#
# Usage: host-device-del.sh. It needs go in PATH. The exit status is 1 if the behaviour differs from the output above, and
# 2 if something is missing.
set -eu
command -v go >/dev/null || { echo "missing: go" >&2; exit 2; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
plugins='bridge dummy host-device ipvlan macvlan ptp tap vlan'
for plugin in ipam/host-local $(printf 'main/%s ' $plugins); do
  GOBIN=$dir GOFLAGS='' GO111MODULE=on CGO_ENABLED=0 go install "github.com/containernetworking/plugins/plugins/$plugin@v1.10.0" || exit 2
done

# call VERB PROGRAM TYPE NAMESPACE runs a program with the configuration of a type; host-device needs a device, vlan an ID.
call() {
  printf '{"cniVersion":"1.0.0","name":"net","type":"%s","device":"eth0","master":"eth0","vlanId":5,"ipam":{"type":"host-local","dataDir":"%s/leases","ranges":[[{"subnet":"10.1.0.0/24"}]]}}' "$3" "$dir" |
    CNI_COMMAND=$1 CNI_CONTAINERID=example CNI_IFNAME=eth0 CNI_NETNS=$4 CNI_PATH=$dir "$dir/$2" >/dev/null
}

# del TYPE NAMESPACE prints the outcome of a DEL.
del() {
  rm -rf "$dir/leases"
  call ADD host-local "$1" /run/netns/none
  status=0
  call DEL "$1" "$1" "$2" || status=$?
  printf 'exit status %s, leases %s' $status "$(find "$dir/leases" -name '10.*' | wc -l)"
}

for plugin in $plugins; do
  echo "$plugin: CNI_NETNS empty: $(del $plugin ''); missing: $(del $plugin "$dir/none")"
done >"$dir/observed"
cat "$dir/observed"
sed -n '/^# Output:/,/^#$/s/^#   //p' "$0" >"$dir/expected"
diff "$dir/expected" "$dir/observed" || { echo "the behaviour has changed: < expected, > observed" >&2; exit 1; }
