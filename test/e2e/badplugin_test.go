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
	// The header of a 64-bit ELF program for the machine type 0xFFFF, which no
	// processor has.
	alien := "\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9) + "\x02\x00\xff\xff\x01" + strings.Repeat("\x00", 43)
	tests := map[string]struct {
		breaks func(t *testing.T, n *harness.Node)
		// says are found in the answer and in readiness, with the file and ipam.
		says []string
	}{
		"it is missing":        {removePlugin, []string{"host-local", "--cni-bin-dir"}},
		"it is not executable": {makeNotExecutable, []string{"host-local", "permission denied"}},
		"for another machine": {
			func(t *testing.T, n *harness.Node) { n.InstallScript(t, "host-local", alien) },
			[]string{"host-local", "exec format error"},
		},
		"it fails VERSION": {
			func(t *testing.T, n *harness.Node) {
				n.InstallScript(t, "host-local", "#!/bin/sh\necho 'out of order' >&2\nexit 1\n")
			},
			[]string{"host-local", "VERSION", "out of order"},
		},
		"it knows no CNI version of ours": {
			func(t *testing.T, n *harness.Node) {
				n.InstallScript(t, "host-local", "#!/bin/sh\necho '{\"cniVersion\":\"9.0.0\",\"supportedVersions\":[\"9.0.0\"]}'\n")
			},
			[]string{"host-local", "9.0.0", "1.1.0"},
		},
		"a network without ipam": {
			func(t *testing.T, n *harness.Node) {
				n.WriteConf(t, "05-cilium.conflist", []byte(`{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"cilium-cni"}]}`))
			},
			[]string{"no plugin of its chain"},
		},
		"an ipam that is a text": {
			func(t *testing.T, n *harness.Node) {
				n.WriteConf(t, "05-cilium.conflist", []byte(`{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"cilium-cni","ipam":"host-local"}]}`))
			},
			[]string{"ipam is a JSON string", "expected an object"},
		},
		"an ipam.type with a path": {
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
			tt.breaks(t, n)
			s := n.Launch(t)
			s.WaitServing(t)
			a, unready := s.TryAllocate(t, harness.Request{Owner: "router"}), s.Ready()
			for _, says := range append(tt.says, n.ConfDir, "05-cilium.con", "ipam") {
				if a.Status != http.StatusBadGateway || !strings.Contains(string(a.Body), says) {
					t.Errorf("answered %s; want 502 and %q", a, says)
				}
				if unready == nil || !strings.Contains(unready.Error(), says) {
					t.Errorf("health says %v; want it not to be ready and to say %q", unready, says)
				}
			}

			n.InstallPlugin(t, "host-local")
			n.WriteNetwork(t, "05-cilium", harness.IPv4Only())
			s.WaitReady(t)
			s.Allocate(t, harness.Request{Owner: "router"})
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
