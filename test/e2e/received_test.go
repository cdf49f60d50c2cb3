package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// A release that the daemon has received is carried out, although its caller is killed and never repeats it.

// gatedADD makes each ADD of host-local wait until open is called. called waits until one waits.
func gatedADD(t *testing.T, n *harness.Node) (called, open func()) {
	t.Helper()
	begun, gate := filepath.Join(n.Dir, "called"), filepath.Join(n.Dir, "gate")
	n.WrapPlugin(t, "host-local", `#!/bin/sh
if [ "$CNI_COMMAND" = ADD ]; then
  : >`+begun+`
  until [ -e `+gate+` ]; do sleep 0.05; done
fi
exec "$0.real"`)
	called = func() {
		t.Helper()
		harness.Eventually(t, "the plugin to be called", func() error {
			_, err := os.Stat(begun)
			return err
		})
	}
	return called, func() { check.Must(t, os.WriteFile(gate, nil, 0o600)) }
}

// waitQueued waits until an operation waits for a plugin process, or an attachment is being released.
func waitQueued(t *testing.T, s *harness.Daemon) {
	t.Helper()
	harness.Eventually(t, "the release to be received", func() error {
		for _, a := range s.List(t) {
			if a.State == "releasing" {
				return nil
			}
		}
		if sum(scrape(t, s), "delegated_ipam_queue_length", "queue", "process") == 0 {
			return errors.New("nothing waits for a process")
		}
		return nil
	})
}

// waitOnly waits until the daemon has attachments of these owners only, and the plugin that many leases.
func waitOnly(t *testing.T, n *harness.Node, s *harness.Daemon, leases int, owners ...string) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("attachments of %q only", owners), func() error {
		var got []string
		for _, a := range s.List(t) {
			got = append(got, a.Owner)
		}
		if fmt.Sprint(got) != fmt.Sprint(owners) { // the plugin may be writing a lease
			return fmt.Errorf("the list has %q", got)
		}
		stored, _, err := oracle.HostLocalAfterKill(n.StoreDir)
		if len(stored) != leases {
			err = errors.Join(err, fmt.Errorf("the store has %v", stored))
		}
		return err
	})
}

// With one plugin process, every release waits for the ADD of another pod.
//
//evidence:design/reliability a DEL waits for a plugin process, and its client is killed
func TestReceivedWhileProcessIsTaken(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(t *testing.T, s *harness.Daemon, pods harness.Pods, router string) (leave func()){
		"DEL of a container": func(t *testing.T, _ *harness.Daemon, pods harness.Pods, _ string) func() {
			return pods.Begin(t, "DEL", "pod", nil)
		},
		"GC": func(t *testing.T, _ *harness.Daemon, pods harness.Pods, _ string) func() {
			return pods.Begin(t, "GC", "", map[string]any{"cni.dev/valid-attachments": []map[string]string{{"containerID": "slow", "ifname": "eth0"}}})
		},
		"DELETE": func(t *testing.T, s *harness.Daemon, _ harness.Pods, router string) func() {
			ctx, leave := context.WithCancel(t.Context())
			request, err := http.NewRequestWithContext(ctx, http.MethodDelete, "http://localhost/v1/ipam/"+router, http.NoBody)
			check.Must(t, err)
			go func() { _, _ = s.Send(request) }()
			return leave
		},
	} {
		for _, killed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, daemon killed: %t", name, killed), func(t *testing.T) {
				t.Parallel()
				n := harness.NewNode(t)
				nw := harness.IPv4Only()
				nw.CNIVersion = "1.1.0"
				pods := n.PodsThrough(t, "10-pods", nw)
				n.Flags = []string{"--enable-ipv6=false", "--max-plugin-processes=1"}
				s := n.Start(t)
				owners := []string{"cni/slow/eth0"}
				router := s.AllocateFor(t, "router")[0]
				pods.Add(t, "pod")
				n.ResetHistory() // the oracle does not see that the DELETE is received
				called, open := gatedADD(t, n)
				killADD := pods.Begin(t, "ADD", "slow", nil)
				called()
				leave := begin(t, s, pods, router)
				waitQueued(t, s)
				leave()
				if killed {
					s.Kill(t)
				}
				open()
				killADD()
				if killed {
					s, owners = n.Start(t), nil // the interrupted ADD is released
				}
				if name == "DELETE" {
					owners = append([]string{"cni/pod/eth0"}, owners...)
				} else {
					owners = append(owners, "router")
				}
				waitOnly(t, n, s, len(owners), owners...)
			})
		}
	}
}
