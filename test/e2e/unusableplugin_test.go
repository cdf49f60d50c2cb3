package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestUnusablePlugin(t *testing.T) {
	t.Parallel()
	// The header of a 64-bit ELF program for the unassigned machine type 0xFFFF.
	foreignELF := "\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9) + "\x02\x00\xff\xff\x01" + strings.Repeat("\x00", 43)
	tests := map[string]struct {
		spoil func(t *testing.T, n *harness.Node)
		// texts must be in the response and in readiness, besides the file and "ipam".
		texts []string
	}{
		"missing":        {removePlugin, []string{"host-local", "--cni-bin-dir"}},
		"not executable": {makeNotExecutable, []string{"host-local", "permission denied"}},
		"for another machine": {
			func(t *testing.T, n *harness.Node) { n.InstallScript(t, "host-local", foreignELF) },
			[]string{"host-local", "exec format error"},
		},
		"VERSION fails": {
			func(t *testing.T, n *harness.Node) {
				n.InstallScript(t, "host-local", "#!/bin/sh\necho 'out of order' >&2\nexit 1\n")
			},
			[]string{"host-local", "VERSION", "out of order"},
		},
		"no common CNI version": {
			func(t *testing.T, n *harness.Node) {
				n.InstallScript(t, "host-local", "#!/bin/sh\necho '{\"cniVersion\":\"9.0.0\",\"supportedVersions\":[\"9.0.0\"]}'\n")
			},
			[]string{"host-local", "9.0.0", "1.1.0"},
		},
		"network without ipam": {
			func(t *testing.T, n *harness.Node) {
				n.WriteConf(t, "05-cilium.conflist", []byte(`{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"cilium-cni"}]}`))
			},
			[]string{"no plugin of its chain"},
		},
		"ipam is a string": {
			func(t *testing.T, n *harness.Node) {
				n.WriteConf(t, "05-cilium.conflist", []byte(`{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"cilium-cni","ipam":"host-local"}]}`))
			},
			[]string{"ipam is a JSON string", "expected an object"},
		},
		"ipam.type is a path": {
			func(t *testing.T, n *harness.Node) {
				n.WriteConf(t, "05-cilium.conflist", []byte(`{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"cilium-cni","ipam":{"type":"../host-local"}}]}`))
			},
			[]string{"../host-local", "plain file name"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := nodeWith(t, harness.IPv4Only())
			tt.spoil(t, n)
			s := n.Launch(t)
			s.WaitServing(t)
			a, ready := s.TryAllocate(t, harness.Request{Owner: "router"}), s.Ready()
			texts := append(tt.texts, n.ConfDir, "05-cilium.con")
			a.WantError(t, http.StatusBadGateway, texts...)
			wantNotReady(t, ready, texts...)

			n.InstallPlugin(t, "host-local")
			n.WriteNetwork(t, "05-cilium", harness.IPv4Only())
			s.WaitReady(t)
			s.AllocateFor(t, "router")
			s.WaitConsistent(t)
			s.Stop(t)
		})
	}
}

func removePlugin(t *testing.T, n *harness.Node) {
	t.Helper()
	harness.Must(t, os.Remove(filepath.Join(n.BinDir, "host-local")))
}

func makeNotExecutable(t *testing.T, n *harness.Node) {
	t.Helper()
	harness.Must(t, os.Chmod(filepath.Join(n.BinDir, "host-local"), 0o644))
}
