#!/bin/sh
# azure-vnet-subnet.sh: does azure-vnet-ipam work with the configuration of its own example, "ipam": {"type": …}?
#
# Version: cni/ipam/plugin of github.com/Azure/azure-container-networking v1.5.0, with an imitated agent of the host that
# has two free addresses.
#
# One would guess: yes. Its conflist (cni/azure-linux.conflist) has nothing else, and the first ADD succeeds.
#
# Observed: without ipam.subnet an ADD looks for a subnet that is not in use, so a second container gets no address, and
# neither does a repeated ADD of the first one. DEL looks for the subnet "", so every DEL is refused. The plugin
# azure-vnet adds the subnet before it delegates; any other caller must configure it. Besides, allocations are in
# /var/run/azure-vnet-ipam.json, so after a reboot each address is free again.
#
# Output:
#   without subnet: ADD a: 10.1.0.x
#   without subnet: ADD b: Failed to allocate pool: no available address pools
#   without subnet: ADD a: Failed to allocate pool: no available address pools
#   without subnet: DEL a: Failed to release address: Pool id  not found :Invalid address pool
#   with subnet: DEL a: exit status 0
#   with subnet: ADD b: 10.1.0.x
#
# Usage: azure-vnet-subnet.sh. It needs go, ip and unshare in PATH, and root or user namespaces, and some minutes for the
# first build. The exit status is 1 if the behaviour differs from the output above, and 2 if something is missing.
set -eu
self=$(realpath "$0")
for command in go ip unshare; do
  command -v "$command" >/dev/null || { echo "missing: $command" >&2; exit 2; }
done
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
export GOFLAGS='' GO111MODULE=on CGO_ENABLED=0
cat >main.go <<'GO'
package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
)

func call(with, verb, id string) {
	subnet := ""
	if with == "with" {
		subnet = `,"subnet":"10.1.0.0/24"`
	}
	cmd := exec.Command("./azure-vnet-ipam")
	cmd.Env = []string{"CNI_COMMAND=" + verb, "CNI_CONTAINERID=" + id, "CNI_IFNAME=eth0", "CNI_NETNS=/run/netns/none", "CNI_PATH=."}
	cmd.Stdin = strings.NewReader(`{"cniVersion":"0.3.0","name":"net","type":"bridge","ipam":{"type":"azure-vnet-ipam"` + subnet + `}}`)
	out, _ := cmd.Output()
	result := fmt.Sprint("exit status ", cmd.ProcessState.ExitCode())
	if found := regexp.MustCompile(`"(msg|address)": "(.*?)(\d+/24)?"`).FindSubmatch(out); found != nil {
		result = string(found[2])
		if len(found[3]) > 0 { // whichever is the first of a Go map
			result += "x"
		}
	}
	fmt.Printf("%s subnet: %s %s: %s\n", with, verb, id, result)
}

func main() {
	listener, err := net.Listen("tcp", "168.63.129.16:80")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	go http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `<Interfaces><Interface MacAddress="*" IsPrimary="true"><IPSubnet Prefix="10.1.0.0/24"><IPAddress Address="10.1.0.4" IsPrimary="true"/><IPAddress Address="10.1.0.5" IsPrimary="false"/><IPAddress Address="10.1.0.6" IsPrimary="false"/></IPSubnet></Interface></Interfaces>`)
	}))
	call("without", "ADD", "a")
	call("without", "ADD", "b")
	call("without", "ADD", "a")
	call("without", "DEL", "a")
	call("with", "DEL", "a")
	call("with", "ADD", "b")
}
GO
go mod init example >/dev/null 2>&1
go build -o observe main.go
go mod edit -require github.com/Azure/azure-container-networking@v1.5.0
go build -mod=mod -o azure-vnet-ipam github.com/Azure/azure-container-networking/cni/ipam/plugin >/dev/null 2>&1 || exit 2
# The paths of its files are compiled in.
unshare --map-root-user --mount --net sh -euc '
  mount -t tmpfs tmpfs /run
  mount -t tmpfs tmpfs /var/log
  ip link set lo up
  ip addr add 168.63.129.16/32 dev lo
  ./observe' >observed || exit 2
cat observed
sed -n '/^# Output:/,/^#$/s/^#   //p' "$self" >expected
diff expected observed || { echo "the behaviour has changed: < expected, > observed" >&2; exit 1; }
