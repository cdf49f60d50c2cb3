#!/bin/sh
# invoke-busy.sh: does the CNI library call a plugin again whose file is just being written?
#
# Version: pkg/invoke of github.com/containernetworking/cni v1.3.1, built with Go 1.26, over host-local of
# github.com/containernetworking/plugins v1.10.0.
#
# One would guess: yes. ExecPlugin has a loop for it: on "text file busy" it waits for a second and runs the
# command again, six times in all (RawExec in pkg/invoke/raw_exec.go).
#
# Observed: it waits for the second, but never runs the plugin again: the loop repeats Run of the same
# exec.Cmd, which can be started only once, also after a start that has failed. So an installer that copies
# over a plugin makes each ADD in that moment fail, and the error does not say that the file was busy.
#
# Output:
#   file free: success
#   file written for 0.5 s: netplugin failed with no error message: exec: already started
#   leases: 1
#
# Usage: invoke-busy.sh. It needs go in PATH. The exit status is 1 if the behaviour differs from the output
# above, and 2 if something is missing.
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
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
)

func main() {
	dir, _ := os.Getwd()
	plugin := dir + "/host-local"
	config := `{"cniVersion":"1.0.0","name":"net","type":"ptp","ipam":{"type":"host-local","dataDir":"` + dir + `/leases","ranges":[[{"subnet":"10.1.0.0/24"}]]}}`
	call := func(text, id string) {
		env := []string{"CNI_COMMAND=ADD", "CNI_CONTAINERID=" + id, "CNI_IFNAME=eth0", "CNI_NETNS=/run/netns/none", "CNI_PATH=" + dir}
		_, err := (&invoke.RawExec{}).ExecPlugin(context.Background(), plugin, []byte(config), env)
		if err != nil {
			fmt.Printf("%s: %v\n", text, err)
			return
		}
		fmt.Printf("%s: success\n", text)
	}
	call("file free", "first")

	file, err := os.OpenFile(plugin, os.O_WRONLY, 0)
	if err != nil {
		panic(err)
	}
	time.AfterFunc(time.Second/2, func() { file.Close() })
	call("file written for 0.5 s", "second")
	leases, _ := os.ReadDir(dir + "/leases/net")
	count := 0
	for _, entry := range leases {
		if entry.Name() != "lock" && entry.Name() != "last_reserved_ip.0" {
			count++
		}
	}
	fmt.Printf("leases: %d\n", count)
}
GO
go mod init example >/dev/null 2>&1
go get github.com/containernetworking/cni@v1.3.1 >/dev/null 2>&1 || exit 2
go mod tidy >/dev/null 2>&1 || exit 2
go run . >observed
cat observed
sed -n '/^# Output:/,/^#$/s/^#   //p' "$self" >expected
diff expected observed || { echo "the behaviour has changed: < expected, > observed" >&2; exit 1; }
