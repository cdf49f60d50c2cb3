#!/bin/sh
# libcni-long-id.sh: can libcni add a container with a long ID?
#
# Version: libcni of github.com/containernetworking/cni v1.3.1, with plugins/ipam/host-local of
# github.com/containernetworking/plugins v1.10.0 as the only plugin of the list.
#
# One would guess: yes, or it refuses before it calls a plugin. CNI limits the characters of a container ID,
# not its length, and libcni checks the ID first.
#
# Observed: libcni keeps the result in a file named NETWORK-ID-IFNAME. With a name above 255 bytes ADD
# fails after all plugins have succeeded, so the error means "allocated", and the address stays until a
# DEL (AddNetworkList and cacheAdd in libcni/api.go). DEL ignores that the file cannot be opened.
#
# Output:
#   ID of 100 bytes: ADD succeeded, leases 1; DEL succeeded, leases 0
#   ID of 250 bytes: ADD failed (file name too long), leases 1; DEL succeeded, leases 0
#
# Usage: libcni-long-id.sh. It needs go in PATH. The exit status is 1 if the behaviour differs from the
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
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/libcni"
)

func outcome(err error) string {
	leases, _ := filepath.Glob("leases/net/10.*")
	text := "succeeded"
	if err != nil {
		reason := err.Error()
		text = "failed (" + reason[strings.LastIndex(reason, ": ")+2:] + ")"
	}
	return fmt.Sprint(text, ", leases ", len(leases))
}

func main() {
	dir, _ := os.Getwd()
	list, err := libcni.ConfListFromBytes([]byte(`{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"host-local",
		"ipam":{"type":"host-local","dataDir":"` + dir + `/leases","ranges":[[{"subnet":"10.1.0.0/24"}]]}}]}`))
	if err != nil {
		panic(err)
	}
	cni := libcni.NewCNIConfigWithCacheDir([]string{dir}, dir+"/cache", nil)
	for _, length := range []int{100, 250} {
		rt := &libcni.RuntimeConf{ContainerID: strings.Repeat("a", length), NetNS: "/run/netns/none", IfName: "eth0"}
		_, err := cni.AddNetworkList(context.Background(), list, rt)
		added := outcome(err)
		err = cni.DelNetworkList(context.Background(), list, rt)
		fmt.Printf("ID of %d bytes: ADD %s; DEL %s\n", length, added, outcome(err))
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
