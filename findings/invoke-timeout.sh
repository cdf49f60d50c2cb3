#!/bin/sh
# invoke-timeout.sh: does a context with a time limit bound a call of the CNI library?
#
# Version: pkg/invoke of github.com/containernetworking/cni v1.3.1.
#
# One would guess: yes. ExecPlugin takes a context and starts the plugin with exec.CommandContext, which
# kills it when the time is over.
#
# Observed: the plugin is killed in time, but ExecPlugin returns only when every process that has inherited
# its stdout has ended: here a child that a plugin, as a shell script, waits for. A runtime whose limit is
# a minute waits as long as the child lives (RawExec in pkg/invoke/raw_exec.go sets no WaitDelay).
#
# Output:
#   limit 1 s, plugin without child: returned in time
#   limit 1 s, child of the plugin runs for 4 s: returned with the child
#
# Usage: invoke-timeout.sh. It needs go in PATH, and takes 5 s after the download. The exit status is 1 if
# the behaviour differs from the output above, and 2 if something is missing.
set -eu
self=$(realpath "$0")
command -v go >/dev/null || { echo "missing: go" >&2; exit 2; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
printf '#!/bin/sh\nexec sleep 4\n' >plugin
printf '#!/bin/sh\nsleep 4\necho "{}"\n' >parent
chmod +x plugin parent
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
	call := func(text, plugin string) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		begin := time.Now()
		_, err := (&invoke.RawExec{}).ExecPlugin(ctx, dir+"/"+plugin, []byte("{}"), os.Environ())
		when := "in time"
		if time.Since(begin) > 3*time.Second {
			when = "with the child"
		}
		if err == nil {
			when += ", without an error"
		}
		fmt.Printf("limit 1 s, %s: returned %s\n", text, when)
	}
	call("plugin without child", "plugin")
	call("child of the plugin runs for 4 s", "parent")
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
