#!/bin/sh
# spiderpool-del.sh: does a DEL of spiderpool that succeeds release?
#
# Version: github.com/spidernet-io/spiderpool v1.2.2, its CNI plugin with an imitated spiderpool-agent that is
# healthy and refuses each release with status 500.
#
# One would guess: yes, as the plugin fails where its agent cannot be reached.
#
# Observed: the plugin asks for the agent's health first, and an agent that does not respond fails the DEL. An
# error of the release itself, such as a refusal or none within 100 s, is only logged (CmdDel in
# cmd/spiderpool/cmd/command_delete.go): the runtime forgets the container, and the address stays allocated.
#
# Output:
#   DEL without an agent: exit status 1
#   DEL, the agent refuses: exit status 0, releases requested: 1
#
# Usage: spiderpool-del.sh. It needs go in PATH, and some minutes for the first build. The exit status is 1 if
# the behaviour differs from the output above, and 2 if something is missing.
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
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
)

func del(dir string) int {
	cmd := exec.Command(dir + "/spiderpool")
	cmd.Env = []string{"CNI_COMMAND=DEL", "CNI_CONTAINERID=example", "CNI_IFNAME=eth0", "CNI_NETNS=/run/netns/none", "CNI_PATH=" + dir,
		"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=example"}
	cmd.Stdin = strings.NewReader(`{"cniVersion":"1.0.0","name":"net","type":"macvlan","ipam":{"type":"spiderpool",
		"ipam_unix_socket_path":"` + dir + `/agent.sock","log_file_path":"` + dir + `/log"}}`)
	_ = cmd.Run()
	return cmd.ProcessState.ExitCode()
}

func main() {
	dir, _ := os.Getwd()
	fmt.Println("DEL without an agent: exit status", del(dir))
	listener, err := net.Listen("unix", "agent.sock")
	if err != nil {
		panic(err)
	}
	var releases atomic.Int64
	go http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			releases.Add(1)
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	status := del(dir)
	fmt.Printf("DEL, the agent refuses: exit status %d, releases requested: %d\n", status, releases.Load())
}
GO
go mod init example >/dev/null 2>&1
go mod edit -require github.com/spidernet-io/spiderpool@v1.2.2
go build -mod=mod -o spiderpool github.com/spidernet-io/spiderpool/cmd/spiderpool >/dev/null 2>&1 || exit 2
go run main.go >observed
cat observed
sed -n '/^# Output:/,/^#$/s/^#   //p' "$self" >expected
diff expected observed || { echo "the behaviour has changed: < expected, > observed" >&2; exit 1; }
