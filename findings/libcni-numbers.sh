#!/bin/sh
# libcni-numbers.sh: does a plugin read the numbers that are in its configuration?
#
# Version: libcni of github.com/containernetworking/cni v1.3.1, with a plugin that keeps what it reads.
#
# One would guess: yes. libcni adds name, cniVersion and what the runtime passes to the object of each plugin, and
# leaves the keys that it does not know as they are.
#
# Observed: the whole object is decoded into Go's float64 and encoded again. A number above 2^53 becomes a neighbour
# of it, without an error, and from 10^21 on its text has an exponent, which a plugin cannot decode as an integer
# (NetworkConfFromBytes and InjectConf in libcni/conf.go). A plugin that is tested with its file on stdin, or called by
# a plugin that passes its own stdin on, reads the number of the file.
#
# Output:
#   in the file: "id":9007199254740993,"big":1000000000000000000000
#   read after AddNetworkList: "id":9007199254740992,"big":1e+21
#   read after AddNetwork: "id":9007199254740992,"big":1e+21
#
# Usage: libcni-numbers.sh. It needs go in PATH. The exit status is 1 if the behaviour differs from the
# output above, and 2 if something is missing.
set -eu
self=$(realpath "$0")
command -v go >/dev/null || { echo "missing: go" >&2; exit 2; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat >plugin <<'PLUGIN'
#!/bin/sh
# A plugin that keeps the last configuration that it has read.
cat >"${0%/*}/read"
echo '{"cniVersion":"1.0.0"}'
PLUGIN
chmod +x plugin
cat >main.go <<'GO'
package main

import (
	"context"
	"fmt"
	"os"
	"regexp"

	"github.com/containernetworking/cni/libcni"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func main() {
	dir, _ := os.Getwd()
	cni := libcni.NewCNIConfigWithCacheDir([]string{dir}, dir+"/cache", nil)
	rt := &libcni.RuntimeConf{ContainerID: "example", NetNS: "/run/netns/none", IfName: "eth0"}
	show := func(name string, conf []byte) {
		key := func(name string) []byte { return regexp.MustCompile(`"` + name + `":[^,}]*`).Find(conf) }
		fmt.Printf("%s: %s,%s\n", name, key("id"), key("big"))
	}
	const name = `"cniVersion":"1.0.0","name":"net"`
	const keys = `"type":"plugin","id":9007199254740993,"big":1000000000000000000000`
	list := []byte("{" + name + `,"plugins":[{` + keys + "}]}")
	show("in the file", list)
	must(cni.AddNetworkList(context.Background(), must(libcni.NetworkConfFromBytes(list)), rt))
	show("read after AddNetworkList", must(os.ReadFile("read")))
	single := []byte("{" + name + "," + keys + "}")
	must(cni.AddNetwork(context.Background(), must(libcni.NetworkPluginConfFromBytes(single)), rt))
	show("read after AddNetwork", must(os.ReadFile("read")))
}
GO
export GOFLAGS='' GO111MODULE=on CGO_ENABLED=0
go mod init example >/dev/null 2>&1
go get github.com/containernetworking/cni@v1.3.1 >/dev/null 2>&1 || exit 2
go mod tidy >/dev/null 2>&1 || exit 2
go run . >observed
cat observed
sed -n '/^# Output:/,/^#$/s/^#   //p' "$self" >expected
diff expected observed || { echo "the behaviour has changed: < expected, > observed" >&2; exit 1; }
