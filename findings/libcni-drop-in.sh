#!/bin/sh
# libcni-drop-in.sh: is the configuration that libcni keeps for a DEL that of the ADD?
#
# Version: libcni of github.com/containernetworking/cni v1.3.1, with plugins/ipam/host-local of
# github.com/containernetworking/plugins v1.10.0 as the last plugin of the network: in the file of the network, or in a
# file of the directory beside it that has the network's name, where CNI 1.1.0 permits plugins to be added.
#
# One would guess: yes. ADD keeps it beside the result, and GetNetworkListCachedConfig returns it, so that a runtime can
# undo with it what the ADD has done after the files have changed.
#
# Observed: libcni keeps the text of the network's file alone. The plugins of the directory were called by ADD, and are
# missing in the kept configuration, so a DEL with it does not call them. It succeeds, also if no plugin is left, and
# removes the file of the cache; the address stays allocated (NetworkConfFromFile in libcni/conf.go, AddNetworkList in
# libcni/api.go).
#
# Output:
#   in the file: plugins of ADD 1, leases 1; kept 1; DEL <nil>, leases 0, cached results 0
#   in the directory: plugins of ADD 1, leases 1; kept 0; DEL <nil>, leases 1, cached results 0
#
# Usage: libcni-drop-in.sh. It needs go in PATH. The exit status is 1 if the behaviour differs from the output above, and
# 2 if something is missing.
set -eu
self=$(realpath "$0")
command -v go >/dev/null || { echo "missing: go" >&2; exit 2; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
export GOFLAGS='' GO111MODULE=on CGO_ENABLED=0
cat >main.go <<'GO'
package main

import (
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

func count(pattern string) int { return len(must(filepath.Glob(pattern))) }

func observe(where, plugins, dropIn string) {
	dir := must(os.Getwd())
	conf := filepath.Join(where, "net.conflist")
	must(0, os.MkdirAll(filepath.Join(where, "net"), 0o755))
	must(0, os.WriteFile(conf, []byte(`{"cniVersion":"1.0.0","name":"net"`+plugins+`}`), 0o644))
	if dropIn != "" {
		must(0, os.WriteFile(filepath.Join(where, "net", "10-ipam.conf"), []byte(dropIn), 0o644))
	}
	cni := libcni.NewCNIConfigWithCacheDir([]string{dir}, filepath.Join(dir, "cache"), nil)
	rt := &libcni.RuntimeConf{ContainerID: "example", NetNS: "/run/netns/none", IfName: "eth0"}
	list := must(libcni.NetworkConfFromFile(conf))
	must(cni.AddNetworkList(context.Background(), list, rt))
	fmt.Printf("%s: plugins of ADD %d, leases %d; ", where, len(list.Plugins), count("leases/net/10.*"))

	text, keptRT, err := cni.GetNetworkListCachedConfig(list, rt)
	must(0, err)
	kept := must(libcni.NetworkConfFromBytes(text))
	err = cni.DelNetworkList(context.Background(), kept, keptRT)
	leases, results := count("leases/net/10.*"), count("cache/results/*")
	fmt.Printf("kept %d; DEL %v, leases %d, cached results %d\n", len(kept.Plugins), err, leases, results)
}

func main() {
	const ipam = `{"type":"host-local","dataDir":"%s/leases","ranges":[[{"subnet":"10.1.0.0/24"}]]}`
	plugin := fmt.Sprintf(`{"type":"host-local","ipam":`+ipam+`}`, must(os.Getwd()))
	observe("in the file", `,"plugins":[`+plugin+`]`, "")
	observe("in the directory", "", plugin)
}
GO
GOBIN=$dir go install github.com/containernetworking/plugins/plugins/ipam/host-local@v1.10.0 || exit 2
go mod init example >/dev/null 2>&1
go get github.com/containernetworking/cni@v1.3.1 >/dev/null 2>&1 || exit 2
go mod tidy >/dev/null 2>&1 || exit 2
go run . >observed
cat observed
sed -n '/^# Output:/,/^#$/s/^#   //p' "$self" >expected
diff expected observed || { echo "the behaviour has changed: < expected, > observed" >&2; exit 1; }
