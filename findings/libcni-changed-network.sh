#!/bin/sh
# libcni-changed-network.sh: which configuration does a DEL of libcni use after the network's file has changed?
#
# Version: libcni of github.com/containernetworking/cni v1.3.1, which containerd 2.4 calls for pods with the file as
# it is then, and plugins/ipam/host-local of github.com/containernetworking/plugins v1.10.0.
#
# One would guess: that of the ADD. libcni keeps it beside the result, in the file of its cache from which DEL takes
# the result.
#
# Observed: DEL passes the result of the ADD with the configuration of the caller; nothing but
# GetNetworkListCachedConfig reads the kept one, and DEL removes it. Where the new file allocates elsewhere (another
# store, another plugin) DEL succeeds, and the address stays allocated for good. Where the name of the network has
# changed the plugin does not even get the result (DelNetworkList and getCachedResult in libcni/api.go).
#
# Output:
#   after ADD: the first store is in the kept configuration: true
#   DEL, another store: <nil>, result passed: true, leases in the first store: 1, kept: false
#   DEL, another name: <nil>, result passed: false, leases in the first store: 1, kept: true
#   DEL, the kept configuration: <nil>, result passed: true, leases in the first store: 0, kept: false
#
# Usage: libcni-changed-network.sh. It needs go in PATH. The exit status is 1 if the behaviour differs from the
# output above, and 2 if something is missing.
set -eu
self=$(realpath "$0")
command -v go >/dev/null || { echo "missing: go" >&2; exit 2; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
export GOFLAGS='' GO111MODULE=on CGO_ENABLED=0
GOBIN=$dir go install github.com/containernetworking/plugins/plugins/ipam/host-local@v1.10.0 || exit 2
cat >plugin <<'PLUGIN'
#!/bin/sh
# host-local, which keeps the last configuration that it has read.
dir=${0%/*}
cat >"$dir/read"
exec "$dir/host-local" <"$dir/read"
PLUGIN
chmod +x plugin
cat >main.go <<'GO'
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/containernetworking/cni/libcni"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func main() {
	ctx, dir := context.Background(), must(os.Getwd())
	cni := libcni.NewCNIConfigWithCacheDir([]string{dir}, dir+"/cache", nil)
	network := func(name, store string) *libcni.NetworkConfigList {
		return must(libcni.NetworkConfFromBytes([]byte(`{"cniVersion":"1.0.0","name":"` + name + `","plugins":[{"type":"plugin","ipam":{
			"type":"host-local","dataDir":"` + dir + "/" + store + `","ranges":[[{"subnet":"10.1.0.0/24"}]]}}]}`)))
	}
	count := func(pattern string) int { return len(must(filepath.Glob(pattern))) }
	first := network("net", "first")
	for _, del := range []struct {
		with    string
		network *libcni.NetworkConfigList
	}{
		{"another store", network("net", "second")},
		{"another name", network("other", "second")},
		{"the kept configuration", nil},
	} {
		must(0, os.RemoveAll("first"))
		rt := &libcni.RuntimeConf{ContainerID: "example", NetNS: "/run/netns/none", IfName: "eth0"}
		must(cni.AddNetworkList(ctx, first, rt))
		kept, _, err := cni.GetNetworkListCachedConfig(first, rt)
		if err != nil {
			panic(err)
		}
		if del.with == "another store" {
			fmt.Println("after ADD: the first store is in the kept configuration:", bytes.Contains(kept, []byte(dir+"/first")))
		}
		if del.network == nil {
			del.network = must(libcni.NetworkConfFromBytes(kept))
		}
		err = cni.DelNetworkList(ctx, del.network, rt)
		fmt.Printf("DEL, %s: %v, result passed: %v, leases in the first store: %d, kept: %v\n", del.with, err,
			bytes.Contains(must(os.ReadFile("read")), []byte("prevResult")), count("first/net/10.*"), count("cache/results/net-*") > 0)
	}
}
GO
go mod init example >/dev/null 2>&1
go get github.com/containernetworking/cni@v1.3.1 >/dev/null 2>&1 || exit 2
go mod tidy >/dev/null 2>&1 || exit 2
go run . >observed
cat observed
sed -n '/^# Output:/,/^#$/s/^#   //p' "$self" >expected
diff expected observed || { echo "the behaviour has changed: < expected, > observed" >&2; exit 1; }
