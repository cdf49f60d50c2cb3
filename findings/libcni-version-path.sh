#!/bin/sh
# libcni-version-path.sh: can a plugin that delegates answer libcni's VERSION by asking its delegate?
#
# Version: pkg/invoke of github.com/containernetworking/cni v1.3.1, with plugins/ipam/host-local of
# github.com/containernetworking/plugins v1.10.0 as the delegate.
#
# One would guess: yes. CNI_PATH is the list of directories to search for plugins, and GetVersionInfo finds
# the plugin itself in such a directory.
#
# Observed: libcni sets CNI_PATH to the text "dummy" for VERSION (and CNI_NETNS and CNI_IFNAME, too), so no
# delegate is found (GetVersionInfo in pkg/invoke/exec.go). A plugin that passes VERSION on seems to support
# nothing, or, if it exits with 0, prints nothing; every other verb works.
#
# Output:
#   VERSION with the directory of the plugins: 0.1.0 to 1.1.0
#   VERSION of libcni: CNI_PATH=dummy: host-local was not found
#
# Usage: libcni-version-path.sh. It needs go in PATH. The exit status is 1 if the behaviour differs from
# the output above, and 2 if something is missing.
set -eu
self=$(realpath "$0")
command -v go >/dev/null || { echo "missing: go" >&2; exit 2; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
export GOFLAGS='' GO111MODULE=on CGO_ENABLED=0
GOBIN=$dir go install github.com/containernetworking/plugins/plugins/ipam/host-local@v1.10.0 || exit 2
cat >delegator <<'PLUGIN'
#!/bin/sh
# An IPAM plugin that passes each verb on to host-local, as meta plugins do.
[ ! -x "$CNI_PATH/host-local" ] || exec "$CNI_PATH/host-local"
echo "{\"cniVersion\": \"1.0.0\", \"code\": 100, \"msg\": \"CNI_PATH=$CNI_PATH: host-local was not found\"}"
exit 1
PLUGIN
chmod +x delegator
cat >main.go <<'GO'
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/version"
)

func main() {
	exec := &invoke.DefaultExec{RawExec: &invoke.RawExec{}, PluginDecoder: version.PluginDecoder{}}
	dir, _ := os.Getwd()
	environ := append(os.Environ(), "CNI_COMMAND=VERSION", "CNI_NETNS=dummy", "CNI_IFNAME=dummy", "CNI_PATH="+dir)
	out, err := exec.ExecPlugin(context.Background(), dir+"/delegator", []byte(`{"cniVersion":"1.1.0"}`), environ)
	if err != nil {
		panic(err)
	}
	info, err := exec.Decode(out)
	if err != nil {
		panic(err)
	}
	all := info.SupportedVersions()
	fmt.Printf("VERSION with the directory of the plugins: %s to %s\n", all[0], all[len(all)-1])
	_, err = invoke.GetVersionInfo(context.Background(), dir+"/delegator", exec)
	fmt.Println("VERSION of libcni:", err)
}
GO
go mod init example >/dev/null 2>&1
go get github.com/containernetworking/cni@v1.3.1 >/dev/null 2>&1 || exit 2
go mod tidy >/dev/null 2>&1 || exit 2
go run . >observed
cat observed
sed -n '/^# Output:/,/^#$/s/^#   //p' "$self" >expected
diff expected observed || { echo "the behaviour has changed: < expected, > observed" >&2; exit 1; }
