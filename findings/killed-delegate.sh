#!/bin/sh
# killed-delegate.sh: does a DEL after an ADD that was killed release what the ADD allocates?
#
# Versions: libcni of github.com/containernetworking/cni v1.3.1, pkg/ipam, by which the interface plugins delegate, and
# plugins/ipam/host-local of github.com/containernetworking/plugins v1.10.0, behind a delay of two seconds.
#
# One would guess: yes. The runtime has waited until the plugin has ended, and calls DEL after that; nothing of the ADD
# is left that could act.
#
# Observed: the time limit kills the interface plugin alone. Its IPAM plugin, a child, goes on (ExecPlugin in
# pkg/invoke/raw_exec.go makes no process group, and sets no signal for the death of the parent). The DEL finds no
# address and succeeds, then the ADD allocates one for a container that the runtime has forgotten.
#
# Output:
#   ADD with a limit of 1 s: failed, leases 0
#   DEL: succeeded, leases 0
#   when the IPAM plugin has ended: leases 1
#
# Usage: killed-delegate.sh. It needs go in PATH. The exit status is 1 if the behaviour differs from the
# output above, and 2 if something is missing.
set -eu
self=$(realpath "$0")
command -v go >/dev/null || { echo "missing: go" >&2; exit 2; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
export GOFLAGS='' GO111MODULE=on CGO_ENABLED=0
GOBIN=$dir go install github.com/containernetworking/plugins/plugins/ipam/host-local@v1.10.0 || exit 2
cat >slow <<'PLUGIN'
#!/bin/sh
# host-local, whose ADD takes longer, as over a network.
dir=${0%/*}
[ "$CNI_COMMAND" != ADD ] || sleep 2
"$dir/host-local"
status=$?
[ "$CNI_COMMAND" != ADD ] || touch "$dir/ended"
exit $status
PLUGIN
chmod +x slow
mkdir interface runtime
cat >interface/main.go <<'GO'
// An interface plugin that makes no interface.
package main

import (
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
	"github.com/containernetworking/plugins/pkg/ipam"
)

func main() {
	skel.PluginMainFuncs(skel.CNIFuncs{
		Add: func(args *skel.CmdArgs) error {
			result, err := ipam.ExecAdd("slow", args.StdinData)
			if err != nil {
				return err
			}
			return types.PrintResult(result, "1.0.0")
		},
		Del: func(args *skel.CmdArgs) error { return ipam.ExecDel("slow", args.StdinData) },
	}, version.All, "")
}
GO
cat >runtime/main.go <<'GO'
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/containernetworking/cni/libcni"
)

func main() {
	dir, _ := os.Getwd()
	list, err := libcni.NetworkConfFromBytes([]byte(`{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"plugin","ipam":{
		"type":"slow","dataDir":"` + dir + `/leases","ranges":[[{"subnet":"10.1.0.0/24"}]]}}]}`))
	if err != nil {
		panic(err)
	}
	cni := libcni.NewCNIConfigWithCacheDir([]string{dir}, dir+"/cache", nil)
	rt := &libcni.RuntimeConf{ContainerID: "example", NetNS: "/run/netns/none", IfName: "eth0"}
	leases := func() int { all, _ := filepath.Glob("leases/net/10.*"); return len(all) }
	outcome := map[bool]string{true: "succeeded", false: "failed"}
	limited, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, err = cni.AddNetworkList(limited, list, rt)
	fmt.Printf("ADD with a limit of 1 s: %s, leases %d\n", outcome[err == nil], leases())
	err = cni.DelNetworkList(context.Background(), list, rt)
	fmt.Printf("DEL: %s, leases %d\n", outcome[err == nil], leases())
	for _, err := os.Stat("ended"); err != nil; _, err = os.Stat("ended") {
		time.Sleep(10 * time.Millisecond)
	}
	fmt.Printf("when the IPAM plugin has ended: leases %d\n", leases())
}
GO
go mod init example >/dev/null 2>&1
go get github.com/containernetworking/cni@v1.3.1 github.com/containernetworking/plugins@v1.10.0 >/dev/null 2>&1 || exit 2
go mod tidy >/dev/null 2>&1 || exit 2
go build -o plugin ./interface
go build -o run ./runtime
./run >observed
cat observed
sed -n '/^# Output:/,/^#$/s/^#   //p' "$self" >expected
diff expected observed || { echo "the behaviour has changed: < expected, > observed" >&2; exit 1; }
