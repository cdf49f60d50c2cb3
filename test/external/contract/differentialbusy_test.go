package contract

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// An ADD waits for the file "$0.go".
const pausedScript = version + `if [ "$CNI_COMMAND" = ADD ]; then
  until [ -e "$0.go" ]; do sleep 0.02; done
  echo '{"cniVersion":"1.0.0","ips":[{"address":"10.15.0.7/24"}]}'
fi
`

// compareBusy compares a failing restore where the sidecar's queue is full.
func compareBusy(t *testing.T, rules map[string]differenceRule, seen map[string]int) {
	t.Helper()
	n := nodeWith(t, harness.Network{Name: "pods", CNIVersion: "1.0.0", Plugin: "scripted"})
	n.Store = nil
	n.InstallScript(t, "scripted", pausedScript)
	s := n.Launch(t, "--max-plugin-processes=1", "--max-queued-requests=2")
	s.WaitReady(t)
	var waiting sync.WaitGroup
	for i := range 2 {
		waiting.Go(func() {
			if a, err := s.Try(http.MethodPost, fmt.Sprintf("/v1/ipam?owner=waiting-%d", i)); err != nil {
				t.Errorf("a waiting request was answered %s, %v", a, err)
			}
		})
	}
	t.Cleanup(func() {
		harness.Must(t, os.WriteFile(filepath.Join(n.BinDir, "scripted.go"), nil, 0o600))
		waiting.Wait()
	})
	harness.Eventually(t, "a request to wait for a process", func() error {
		const line = "\ndelegated_ipam_queue_length{queue=\"process\"} 1\n"
		if a := s.Do(t, http.MethodGet, "/metrics"); !strings.Contains(string(a.Body), line) {
			return fmt.Errorf("the metrics lack %q", line)
		}
		return nil
	})

	r := request{
		labels: labels{operation: "restore", ipPart: "the router's", poolPart: "default"},
		method: "POST", target: "/v1/ipam/10.15.0.1?owner=o&pool=default",
	}
	cilium := startCiliumAgent(t, ipv4)
	theirs := answerTo(t, r, nil, func() (net.Conn, error) { return net.Dial("unix", cilium.socket) })
	ours := answerTo(t, r, nil, func() (net.Conn, error) { return net.Dial("unix", n.Socket) })
	findRules(t, r, differences(r, theirs, ours), rules, seen)
}
