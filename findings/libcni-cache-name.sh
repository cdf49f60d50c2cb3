#!/bin/sh
# libcni-cache-name.sh: does libcni keep the result of each attachment?
#
# Version: libcni of github.com/containernetworking/cni v1.3.1, over host-local of
# github.com/containernetworking/plugins v1.10.0.
#
# One would guess: yes. Its cache has a file for each network, container ID and interface, whose names the
# specification restricts to letters, digits and ".", "_" and "-".
#
# Observed: the name of the file joins the three with "-", which each of them may have. So container x-1 of
# network pods and container 1 of network pods-x share one file: the second ADD replaces the result of the
# first, and the DEL of the second removes it. CHECK and DEL of the first then have another container's
# previous result or none, and a GC, which releases what is in the cache and not valid, does not release
# its address (getCacheFilePath and GCNetworkList in libcni/api.go).
#
# Output:
#   ADD pods x-1: 10.1.0.2/24
#   ADD pods-x 1: 10.2.0.2/24
#   cached result of pods x-1: 10.2.0.2/24
#   DEL pods-x 1: success
#   cached result of pods x-1: none
#   GC of pods, nothing is valid: success
#   leases of pods: 10.1.0.2
#
# Usage: libcni-cache-name.sh. It needs go in PATH. The exit status is 1 if the behaviour differs from the
# output above, and 2 if something is missing.
set -eu
self=$(realpath "$0")
command -v go >/dev/null || { echo "missing: go" >&2; exit 2; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
export GOFLAGS='' GO111MODULE=on CGO_ENABLED=0
GOBIN=$dir go install github.com/containernetworking/plugins/plugins/ipam/host-local@v1.10.0 || exit 2
cat >main.go <<'GO'
package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
)

var dir, _ = os.Getwd()

// network returns a network of host-local alone.
func network(name, subnet string) *libcni.NetworkConfigList {
	list, err := libcni.ConfListFromBytes([]byte(fmt.Sprintf(`{"cniVersion":"1.0.0","name":%q,"plugins":[
		{"type":"host-local","ipam":{"type":"host-local","dataDir":%q,"ranges":[[{"subnet":%q}]]}}]}`, name, dir+"/leases", subnet)))
	if err != nil {
		panic(err)
	}
	return list
}

func container(id string) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{ContainerID: id, NetNS: "/run/netns/none", IfName: "eth0"}
}

// address returns the address of a result.
func address(result types.Result, err error) string {
	if err != nil {
		return err.Error()
	}
	if result == nil {
		return "none"
	}
	converted, err := current.NewResultFromResult(result)
	if err != nil {
		return err.Error()
	}
	return converted.IPs[0].Address.String()
}

func outcome(err error) string {
	if err != nil {
		return err.Error()
	}
	return "success"
}

func main() {
	ctx, cni := context.Background(), libcni.NewCNIConfigWithCacheDir([]string{dir}, dir+"/cache", nil)
	pods, podsX := network("pods", "10.1.0.0/24"), network("pods-x", "10.2.0.0/24")
	cached := func() string { return address(cni.GetNetworkListCachedResult(pods, container("x-1"))) }

	fmt.Println("ADD pods x-1:", address(cni.AddNetworkList(ctx, pods, container("x-1"))))
	fmt.Println("ADD pods-x 1:", address(cni.AddNetworkList(ctx, podsX, container("1"))))
	fmt.Println("cached result of pods x-1:", cached())
	fmt.Println("DEL pods-x 1:", outcome(cni.DelNetworkList(ctx, podsX, container("1"))))
	fmt.Println("cached result of pods x-1:", cached())
	fmt.Println("GC of pods, nothing is valid:", outcome(cni.GCNetworkList(ctx, pods, &libcni.GCArgs{})))
	var leases []string
	entries, _ := os.ReadDir(dir + "/leases/pods")
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), "10.") {
			leases = append(leases, entry.Name())
		}
	}
	fmt.Println("leases of pods:", strings.Join(leases, " "))
}
GO
go mod init example >/dev/null 2>&1
go get github.com/containernetworking/cni@v1.3.1 >/dev/null 2>&1 || exit 2
go mod tidy >/dev/null 2>&1 || exit 2
go run . >observed
cat observed
sed -n '/^# Output:/,/^#$/s/^#   //p' "$self" >expected
diff expected observed || { echo "the behaviour has changed: < expected, > observed" >&2; exit 1; }
