package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/failpoint"
	"github.com/delegated-ipam/delegated-ipam/internal/spool"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// spooled returns the names of the files of the spool.
func spooled(t *testing.T, n *harness.Node) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(n.Spool())
	check.Must(t, err)
	for _, e := range entries {
		if e.Name() != spool.Quarantine {
			names = append(names, e.Name())
		}
	}
	return names
}

// waitDrained waits until the spool has no file.
func waitDrained(t *testing.T, n *harness.Node) {
	t.Helper()
	harness.Eventually(t, "the spool to be empty", func() error {
		if left := spooled(t, n); len(left) > 0 {
			return fmt.Errorf("it has %q", left)
		}
		return nil
	})
}

// delAway runs a DEL for a pod while the daemon is away, with a short wait for it.
func delAway(n *harness.Node, p harness.Pods, id string) error {
	_, err := p.Call("DEL", id, map[string]any{"ipam": map[string]any{"type": "delegated-ipam-cni", "socket": n.Socket, "spool": n.Spool(), "timeout": 1}})
	return err
}

// leftPod returns a node whose daemon is stopped, and whose pod has ended meanwhile.
func leftPod(t *testing.T) (*harness.Node, harness.Pods) {
	t.Helper()
	n, pods := podNode(t)
	s := n.Start(t)
	pods.Add(t, "0123abcd")
	s.Stop(t)
	check.Must(t, delAway(n, pods, "0123abcd"))
	wantIDs(t, n, "0123abcd")
	if left := spooled(t, n); len(left) != 1 {
		t.Fatalf("the spool has %q; want one DEL", left)
	}
	return n, pods
}

// wantSpool wants a status of the spool.
func wantSpool(t *testing.T, n *harness.Node, pending, quarantined int) {
	t.Helper()
	harness.Eventually(t, "the status of the spool", func() error {
		var status struct {
			DelegatedIPAM struct {
				Spool struct{ Pending, Quarantined int }
			} `json:"delegated-ipam"`
		}
		out := n.Command(t, "status", "-o=json").Stdout
		err := json.Unmarshal([]byte(out), &status)
		if got := status.DelegatedIPAM.Spool; err == nil && (got.Pending != pending || got.Quarantined != quarantined) {
			err = fmt.Errorf("got %+v; want %d and %d", got, pending, quarantined)
		}
		return err
	})
}

//evidence:design/reliability a DEL while the daemon is away
func TestSpooledDel(t *testing.T) {
	t.Parallel()
	n, _ := leftPod(t)
	s := n.Start(t)
	waitDrained(t, n)
	wantIDs(t, n)
	wantNoAttachment(t, s, "cni/0123abcd/eth0")
	wantSpool(t, n, 0, 0)
}

// The daemon is killed after the DEL and after the removal of its file; the next one completes both.
//
//evidence:design/reliability the daemon is killed while it carries out a DEL of the spool
func TestSpooledDelKilled(t *testing.T) {
	for _, point := range []failpoint.Point{failpoint.LeaseRemoving, failpoint.LeaseRemoved, failpoint.LeaseSynced, failpoint.CommitDurable, failpoint.SpoolDone, failpoint.SpoolRemoved} {
		t.Run(string(point), func(t *testing.T) {
			t.Parallel()
			n, _ := leftPod(t)
			plan := filepath.Join(n.Dir, "plan")
			n.Program, n.Env = harness.Failpoints(t), append(n.Env, failpoint.EnvPlan+"="+plan)
			check.Must(t, os.WriteFile(plan, []byte(failpoint.Plan{Point: point, Visit: 1}.String()), 0o600))
			killed := n.Launch(t)
			harness.Eventually(t, "the daemon to be killed", func() error {
				if killed.Running() {
					return errors.New("it runs")
				}
				return nil
			})
			check.Must(t, os.Remove(plan))
			n.Start(t)
			waitDrained(t, n)
			wantIDs(t, n)
		})
	}
}

// One that appears while the daemon runs, because the answer to the DEL was lost, is carried out.
func TestSpooledDelLostAnswer(t *testing.T) {
	t.Parallel()
	n, pods := podNode(t)
	n.Start(t)
	pods.Add(t, "0123abcd")
	proxy := filepath.Join(n.Dir, "proxy")
	l, err := net.Listen("unix", proxy)
	check.Must(t, err)
	defer l.Close()
	go func() { // forwards each request, and never the answer
		for from, err := l.Accept(); err == nil; from, err = l.Accept() {
			if to, err := net.Dial("unix", n.Socket); err == nil {
				go func() { _, _ = io.Copy(to, from) }()
				_, _ = to.Read(make([]byte, 1))
				to.Close()
			}
			from.Close()
		}
	}()
	_, err = pods.Call("DEL", "0123abcd", map[string]any{"ipam": map[string]any{"type": "delegated-ipam-cni", "socket": proxy, "spool": n.Spool()}})
	check.Must(t, err)
	waitDrained(t, n)
	wantIDs(t, n)
}

// An ADD of the same ID comes after the DEL, in any order of the daemon's work.
//
//evidence:design/reliability a DEL while the daemon is away
func TestSpooledDelBeforeAdd(t *testing.T) {
	t.Parallel()
	n, pods := leftPod(t)
	s := n.Start(t)
	pods.Add(t, "0123abcd")
	waitDrained(t, n)
	wantIDs(t, n, "0123abcd")
	wantState(t, s, "cni/0123abcd/eth0", "held")
	call(t, pods, "CHECK", "0123abcd")
}

// A daemon that stops rejects requests until its plugin calls have ended. The DELs of that time are carried out by the next
// one.
//
//evidence:design/reliability a DEL while the daemon is away
func TestSpooledDelWhileStopping(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t)
	plugin := n.InstallScripted(t, "central")
	ipam := ranges()
	ipam["type"] = "central"
	pods := n.PodsThrough(t, "10-pods", harness.Network{Name: "pods", CNIVersion: "1.1.0", Plugin: "central", IPAM: ipam})
	s := n.Start(t, "--enable-ipv6=false")
	pods.Add(t, "0123abcd")
	before := plugin.CallCount(t, "ADD")
	plugin.SetScript(t, "ADD", `{"gate":"go-on"}`)
	kill := pods.Begin(t, "ADD", "slow", nil)
	plugin.WaitCall(t, "ADD", before)
	s.Signal(t, syscall.SIGTERM)
	s.WaitLog(t, "Stopping")
	check.Must(t, delAway(n, pods, "0123abcd"))
	kill()
	plugin.Open(t, "go-on")
	s.Wait(t)
	check.Must(t, delAway(n, pods, "slow"))
	n.Start(t, "--enable-ipv6=false")
	waitDrained(t, n)
	if held := plugin.Holds(t); len(held) > 0 {
		t.Errorf("the plugin holds %q", held)
	}
}

// A DEL of an earlier sandbox does not release a later one of the same ID. A reboot does not change what a
// DEL means.
//
//evidence:operate/security a DEL of an earlier container, left there
func TestSpooledDelOfEarlierSandbox(t *testing.T) {
	t.Parallel()
	n, pods := podNode(t)
	s := n.Start(t)
	pods.Add(t, "0123abcd")
	s.Stop(t)
	check.Must(t, delAway(n, pods, "0123abcd"))
	check.Must(t, delAway(n, pods, "of-another-boot"))
	older, err := os.ReadFile(filepath.Join(n.Spool(), spooledName(t, n, "0123abcd")))
	check.Must(t, err)
	n.Reboot(t)
	s = n.Start(t)
	waitDrained(t, n)
	wantIDs(t, n)
	request := container{"0123abcd", "eth0"}.request()
	request["netns"] = "/var/run/netns/another"
	cni(t, s, "add", request).WantStatus(t, http.StatusOK)
	check.Must(t, os.WriteFile(filepath.Join(n.Dir, "older"), older, 0o600))
	check.Must(t, os.Rename(filepath.Join(n.Dir, "older"), filepath.Join(n.Spool(), spooledName(t, n, "0123abcd"))))
	waitDrained(t, n)
	s.WaitLog(t, "added again for another sandbox since")
	wantIDs(t, n, "0123abcd")
}

func spooledName(t *testing.T, n *harness.Node, id string) string {
	t.Helper()
	return spool.Name("pods", id, "eth0")
}

// Files of another origin are moved aside; none of them is followed, read as configuration or removed.
//
//evidence:design/reliability a foreign or damaged file in the spool
//evidence:operate/security a link, FIFO, directory, second name, foreign owner, or a writable, damaged, renamed or large file in the spool
func TestSpoolForeignFiles(t *testing.T) {
	t.Parallel()
	n, _ := leftPod(t)
	name := func(id string) string { return filepath.Join(n.Spool(), spooledName(t, n, id)) }
	entry, err := os.ReadFile(name("0123abcd"))
	check.Must(t, err)
	secret := filepath.Join(n.Dir, "secret")
	check.Must(t, os.WriteFile(secret, entry, 0o600))
	write := func(path string, content []byte) { check.Must(t, os.WriteFile(path, content, 0o600)) }
	check.Must(t, os.Remove(name("0123abcd")))
	check.Must(t, os.Symlink(secret, name("0123abcd")))
	write(name("damaged"), []byte(strings.Replace(string(entry), "0123abcd", "0123abce", 1)))
	write(name("renamed"), entry)
	write(name("empty"), nil)
	write(filepath.Join(n.Spool(), "README"), []byte("text"))
	write(name("foreign"), entry)
	check.Must(t, os.Chown(name("foreign"), 65534, 65534))
	check.Must(t, os.Link(secret, name("linked")))
	check.Must(t, os.Mkdir(name("directory"), 0o700))
	s := n.Start(t)
	waitDrained(t, n)
	wantSpool(t, n, 0, 8)
	wantIDs(t, n, "0123abcd")
	wantState(t, s, "cni/0123abcd/eth0", "held")
	if got, err := os.ReadFile(secret); err != nil || string(got) != string(entry) {
		t.Errorf("the file outside is %q, %v", got, err)
	}
	wantCommand(t, n, command{line: "doctor", code: 3, stdout: "8 files of the spool"})
}

// uninstall waits until the daemon that serves has carried out the DELs in the spool, then for its end.
func TestSpoolUninstallDrains(t *testing.T) {
	t.Parallel()
	n, _ := leftPod(t)
	gate := filepath.Join(n.Dir, "gate")
	n.WrapPlugin(t, "host-local", `#!/bin/sh
if [ "$CNI_COMMAND" = DEL ]; then
  until [ -e `+gate+` ]; do sleep 0.05; done
fi
exec "$0.real"`)
	s := n.Start(t)
	wantSpool(t, n, 1, 0)
	end := beginUninstall(t, n, func() { check.Must(t, os.WriteFile(gate, nil, 0o600)) },
		"1 DELs of containers wait in "+n.Spool(), "waiting for the end of the daemon: another process holds "+n.StateDir+": PID ")
	wantIDs(t, n)
	s.Stop(t)
	end()
}
