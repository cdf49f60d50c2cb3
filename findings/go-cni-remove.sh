#!/bin/sh
# go-cni-remove.sh: does containerd learn that a DEL has failed?
#
# Version: github.com/containerd/go-cni v1.1.14, which containerd 2.4 calls for pods.
#
# One would guess: yes. DEL of an unknown container must succeed, so a plugin that returns an error has not
# released, and containerd keeps the sandbox and calls DEL again.
#
# Observed: Remove takes every error whose text contains "not found" for a success, whatever was not found: a
# lease server, a configuration, the plugin's executable. The caller forgets the container, and its address
# stays allocated. With an empty path of the namespace "no such file or directory" is a success, too
# (Remove in cni.go).
#
# Output:
#   DEL failed with "lease server not found": Remove returned <nil>
#   DEL failed with "lease server unreachable": Remove returned an error
#   no namespace, DEL failed with "socket: no such file or directory": Remove returned <nil>
#   no namespace, DEL failed with "lease server unreachable": Remove returned an error
#
# Usage: go-cni-remove.sh. It needs go in PATH. The exit status is 1 if the behaviour differs from the
# output above, and 2 if something is missing.
set -eu
self=$(realpath "$0")
command -v go >/dev/null || { echo "missing: go" >&2; exit 2; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat >plugin <<'PLUGIN'
#!/bin/sh
# A plugin whose DEL fails with the text in the file "reason".
case $CNI_COMMAND in
VERSION) echo '{"cniVersion":"1.0.0","supportedVersions":["1.0.0"]}' ;;
DEL) printf '{"cniVersion":"1.0.0","code":100,"msg":"%s"}' "$(cat "${0%/*}/reason")"; exit 1 ;;
esac
PLUGIN
chmod +x plugin
cat >main.go <<'GO'
package main

import (
	"context"
	"fmt"
	"os"

	gocni "github.com/containerd/go-cni"
)

func main() {
	dir, _ := os.Getwd()
	list := `{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"plugin"}]}`
	cni, err := gocni.New(gocni.WithPluginDir([]string{dir}), gocni.WithConfListBytes([]byte(list)))
	if err != nil {
		panic(err)
	}
	for _, c := range []struct{ prefix, netns, reason string }{
		{"", "/run/netns/none", "lease server not found"},
		{"", "/run/netns/none", "lease server unreachable"},
		{"no namespace, ", "", "socket: no such file or directory"},
		{"no namespace, ", "", "lease server unreachable"},
	} {
		if err := os.WriteFile("reason", []byte(c.reason), 0o644); err != nil {
			panic(err)
		}
		text := "<nil>"
		if cni.Remove(context.Background(), "example", c.netns) != nil {
			text = "an error"
		}
		fmt.Printf("%sDEL failed with %q: Remove returned %s\n", c.prefix, c.reason, text)
	}
}
GO
export GOFLAGS='' GO111MODULE=on CGO_ENABLED=0
go mod init example >/dev/null 2>&1
go get github.com/containerd/go-cni@v1.1.14 >/dev/null 2>&1 || exit 2
go mod tidy >/dev/null 2>&1 || exit 2
go run . >observed
cat observed
sed -n '/^# Output:/,/^#$/s/^#   //p' "$self" >expected
diff expected observed || { echo "the behaviour has changed: < expected, > observed" >&2; exit 1; }
