package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// symptom is a row of docs/troubleshooting.md.
type symptom struct {
	// arise starts a daemon with the fault. The remedy of the row returns the daemon that serves then.
	arise func(t *testing.T, n *harness.Node) (s *harness.Daemon, remedy func() *harness.Daemon)
	// shown returns where the page says that the text is; status for nil.
	shown func(t *testing.T, n *harness.Node, s *harness.Daemon) string
}

// Each text is on the page and shown by the real binary, and the remedy of its row ends the fault.
func TestTroubleshooting(t *testing.T) {
	page, err := os.ReadFile("../../docs/troubleshooting.md")
	check.Must(t, err)
	for text, row := range symptoms() {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			if !strings.Contains(string(page), "`"+text+"`") {
				t.Error("the page does not have the text")
			}
			n := nodeWith(t, harness.IPv4Only())
			s, remedy := row.arise(t, n)
			shown := row.shown
			if shown == nil {
				shown = printed("status")
			}
			harness.Eventually(t, "the symptom", func() error {
				if got := shown(t, n, s); !strings.Contains(got, text) {
					return fmt.Errorf("shown is %s", got)
				}
				return nil
			})
			s = remedy()
			s.WaitReady(t)
			s.AllocateFor(t, "router")
			if n.Store != nil { // the scripted plugin has none
				s.WaitConsistent(t)
			}
		})
	}
}

func symptoms() map[string]symptom {
	type (
		node   = harness.Node
		daemon = harness.Daemon
		remedy = func() *daemon
	)
	return map[string]symptom{
		"no CNI configuration in": {arise: func(t *testing.T, n *node) (*daemon, remedy) {
			emptyDir(t, n.ConfDir)
			s := n.Launch(t)
			return s, func() *daemon { n.WriteNetwork(t, "05-cilium", harness.IPv4Only()); return s }
		}},
		"refuses the configuration": {arise: func(t *testing.T, n *node) (*daemon, remedy) {
			nw := harness.IPv4Only()
			nw.IPAM = map[string]any{"ranges": [][]map[string]string{{{"subnet": "10.15.0.0/24", "gateway": "10.15.1.1"}}}}
			n.WriteNetwork(t, "05-cilium", nw)
			s := n.Launch(t)
			return s, func() *daemon { n.WriteNetwork(t, "05-cilium", harness.IPv4Only()); return s }
		}},
		"failed to find plugin": {arise: func(t *testing.T, n *node) (*daemon, remedy) {
			n.Flags = []string{hostLocalProgram}
			removePlugin(t, n)
			s := n.Launch(t)
			return s, func() *daemon { n.InstallPlugin(t, "host-local"); return s }
		}},
		"does not respond to VERSION or STATUS": {arise: func(t *testing.T, n *node) (*daemon, remedy) {
			plugin := n.InstallScripted(t, "scripted")
			plugin.SetScript(t, "STATUS", hang)
			n.WriteNetwork(t, "05-cilium", harness.Network{Name: "hangs", CNIVersion: "1.1.0", Plugin: "scripted", IPAM: ranges()})
			s := n.Launch(t, "--plugin-timeout=10m")
			return s, func() *daemon {
				n.WriteNetwork(t, "05-cilium", harness.IPv4Only())
				plugin.Open(t, "go-on")
				return s
			}
		}},
		"attachments cannot be verified or released": {arise: func(t *testing.T, n *node) (*daemon, remedy) {
			s := n.Start(t, hostLocalProgram)
			s.AllocateFor(t, "router")
			removePlugin(t, n)
			return s, func() *daemon { n.InstallPlugin(t, "host-local"); return s }
		}},
		"is refused as unsafe": {arise: func(t *testing.T, n *node) (*daemon, remedy) {
			n.InstallScripted(t, "whereabouts")
			n.WriteNetwork(t, "05-cilium", harness.Network{Name: "pods", CNIVersion: "1.0.0", Plugin: "whereabouts", IPAM: ranges()})
			s := n.Launch(t)
			return s, func() *daemon { s.Stop(t); return n.Launch(t, "--accept-unsafe-plugin") }
		}},
		"nothing is changed until the original returns": {arise: func(t *testing.T, n *node) (*daemon, remedy) {
			s := n.Start(t)
			check.Must(t, os.Rename(n.StateDir, n.StateDir+".away"))
			return s, func() *daemon { check.Must(t, os.Rename(n.StateDir+".away", n.StateDir)); return s }
		}},
		"waiting for the state directory": {shown: logged, arise: func(t *testing.T, n *node) (*daemon, remedy) {
			first, second := n.Start(t), n.Launch(t)
			return second, func() *daemon { first.Stop(t); return second }
		}},
		"another daemon serves network": {shown: logged, arise: func(t *testing.T, n *node) (*daemon, remedy) {
			first := n.Start(t)
			other := *n
			other.StateDir, other.Socket = n.StateDir+"2", n.Socket+"2"
			return other.Launch(t), func() *daemon { first.Stop(t); return other.Launch(t) }
		}},
		"already listens on it": {shown: logged, arise: func(t *testing.T, n *node) (*daemon, remedy) {
			first := nodeWith(t, harness.IPv4Only())
			first.Socket = n.Socket
			holder := first.Start(t)
			return n.Launch(t), func() *daemon { holder.Stop(t); return n.Launch(t) }
		}},
		"no daemon can be reached at": {arise: func(t *testing.T, n *node) (*daemon, remedy) {
			return nil, func() *daemon { return n.Launch(t) }
		}},
		"is not admitted by --owners": {shown: printed("allocate", "router"), arise: func(t *testing.T, n *node) (*daemon, remedy) {
			s := n.Start(t, "--owners=health")
			return s, func() *daemon { s.Stop(t); return n.Launch(t, "--owners=health,router") }
		}},
		"no IP addresses available in range set": {shown: printed("allocate", "router"), arise: func(t *testing.T, n *node) (*daemon, remedy) {
			small := harness.IPv4Only()
			small.Subnets = []string{"10.15.0.0/30"}
			n.WriteNetwork(t, "05-cilium", small)
			s := n.Start(t)
			s.AllocateFor(t, "health")
			return s, func() *daemon {
				n.WriteNetwork(t, "05-cilium", harness.IPv4Only())
				harness.Eventually(t, "the larger range to be used", func() error {
					if o := n.Command(t, "allocate", "new"); o.ExitCode != 0 {
						return errors.New(o.Stderr)
					}
					return nil
				})
				return s
			}
		}},
		"lost": {shown: printed("list"), arise: func(t *testing.T, n *node) (*daemon, remedy) {
			s := n.Start(t)
			held := s.AllocateFor(t, "router")
			s.Stop(t)
			n.WipeStore(t)
			n.LeaseToPod(t, "pods", held[0])
			s = n.Start(t)
			return s, func() *daemon { return s } // the owner requests again
		}},
		"releasing": {shown: printed("list"), arise: func(t *testing.T, n *node) (*daemon, remedy) {
			s := n.Start(t, hostLocalProgram)
			held := s.AllocateFor(t, "health")
			removePlugin(t, n)
			n.Command(t, "release", held[0])
			return s, func() *daemon {
				n.InstallPlugin(t, "host-local")
				n.Command(t, "release", held[0])
				waitReleased(t, s, "health")
				return s
			}
		}},
		"the checksum does not match": {arise: func(t *testing.T, n *node) (*daemon, remedy) {
			s := n.Start(t)
			s.AllocateFor(t, "router")
			s.Stop(t)
			n.DamageRecord(t, "default", "router")
			s = n.Start(t)
			return s, func() *daemon {
				s.AllocateFor(t, "router")
				emptyDir(t, filepath.Join(n.StateDir, "quarantine"))
				return s
			}
		}},
		"leases": {shown: printed("doctor"), arise: func(t *testing.T, n *node) (*daemon, remedy) {
			s := n.Start(t)
			s.AllocateFor(t, "router")
			s.Stop(t)
			n.WipeJournal(t)
			s = n.Start(t)
			return s, func() *daemon { return s } // the owner requests again
		}},
	}
}

// printed returns the output of a command.
func printed(args ...string) func(*testing.T, *harness.Node, *harness.Daemon) string {
	return func(t *testing.T, n *harness.Node, _ *harness.Daemon) string {
		t.Helper()
		out := n.Command(t, args...)
		return out.Stdout + out.Stderr
	}
}

func logged(_ *testing.T, _ *harness.Node, s *harness.Daemon) string { return s.Log() }
