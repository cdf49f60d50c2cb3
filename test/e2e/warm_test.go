package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/failpoint"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

const warmID = "cilium-agent-warm-"

// waitWarm waits until the plugin's store has at least and at most so many leases, all under IDs of leases that are
// acquired ahead, and the daemon lists each of them once.
func waitWarm(t *testing.T, n *harness.Node, s *harness.Daemon, least, most int) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("%d leases ahead", least), func() error {
		listed := map[string]bool{}
		list, err := s.TryList()
		for _, a := range list {
			if listed[a.ContainerID] || a.State != "held" {
				err = errors.Join(err, fmt.Errorf("%s of %s is %s, or twice", a.ContainerID, a.Owner, a.State))
			}
			listed[a.ContainerID] = true
		}
		leases, _, readErr := oracle.HostLocalAfterKill(n.StoreDir) // one is being written
		err = errors.Join(err, readErr)
		for _, l := range leases {
			if !strings.HasPrefix(l.ContainerID, warmID) || !listed[l.ContainerID] {
				err = errors.Join(err, fmt.Errorf("the lease %v is not listed", l))
			}
		}
		if len(leases) < least || len(leases) > most || len(listed) != len(leases) {
			err = errors.Join(err, fmt.Errorf("%d leases, %d attachments", len(leases), len(listed)))
		}
		return err
	})
}

// Pods get leases that were acquired ahead, which the plugin has under IDs of the daemon, and give them back.
func TestWarmLeases(t *testing.T) {
	t.Parallel()
	n := containerNode(t)
	n.Flags = append(n.Flags, "--warm-leases=4")
	s := n.Start(t)
	waitWarm(t, n, s, 4, 4)
	pods := []container{{"one", "eth0"}, {"two", "eth0"}}
	var ips []string
	for _, c := range pods {
		ips = append(ips, addContainer(t, s, c)...)
		cni(t, s, "check", c.request()).WantStatus(t, http.StatusOK)
	}
	if len(slices.Compact(slices.Sorted(slices.Values(ips)))) != len(pods) {
		t.Errorf("the pods have %v", ips)
	}
	waitWarm(t, n, s, 6, 6) // with those that replace them
	wantLeased(t, n, ips...)
	out := n.Command(t, "release", "--all", "--yes")
	if out.ExitCode != 1 || !strings.Contains(out.Stderr, "--warm-leases=0") || !strings.Contains(out.Stderr, "drain the node") || !strings.Contains(out.Stderr, "cni/one/eth0") {
		t.Errorf("release --all: %+v; want how the leases are released", out)
	}
	if out := n.Command(t, "status"); !strings.Contains(out.Stdout, "Warm leases:") {
		t.Errorf("status: %s", out.Stdout)
	}
	s.Stop(t)
	wantUninstall(t, n, 1, "cni/one/eth0")
	s = n.Start(t, "--warm-leases=0")
	for _, c := range pods {
		wantAddresses(t, addContainer(t, s, c), addContainer(t, s, c)) // as before the restart
		cni(t, s, "del", c.request()).WantStatus(t, http.StatusOK)
	}
	waitWarm(t, n, s, 0, 0)
	s.Stop(t)
	wantUninstall(t, n, 0, "removed")
}

// Killed at each write of a hand-over and of a return, and started again, the daemon has each lease once, the pods keep
// theirs, and nothing leaks.
//
//evidence:design/reliability killed while a warm lease is handed over or returned
func TestWarmLeasesKilled(t *testing.T) {
	for _, point := range []failpoint.Point{failpoint.CommitBegins, failpoint.CommitDurable} {
		for visit := range 7 {
			plan := failpoint.Plan{Point: point, Visit: visit + 1}
			t.Run(plan.String(), func(t *testing.T) {
				t.Parallel()
				n := containerNode(t)
				n.Flags = append(n.Flags, "--warm-leases=3")
				file := filepath.Join(n.Dir, "plan")
				n.Program, n.Env = harness.Failpoints(t), append(n.Env, failpoint.EnvPlan+"="+file)
				s := n.Start(t)
				waitWarm(t, n, s, 3, 3)
				check.Must(t, os.WriteFile(file, []byte(plan.String()), 0o600))
				restart := func() {
					_, empty, err := oracle.HostLocalAfterKill(n.StoreDir)
					check.Must(t, errors.Join(err, os.Remove(file)))
					for _, lease := range empty { // it was being written, and no DEL frees it
						check.Must(t, os.Remove(lease))
					}
					s = n.Start(t)
				}
				one, two, three := container{"one", "eth0"}, container{"two", "eth0"}, container{"three", "eth0"}
				steps := []struct {
					verb string
					container
				}{{"add", one}, {"add", two}, {"del", one}, {"add", three}, {"del", two}, {"del", three}}
				for _, step := range steps {
					if _, err := s.Send(cniRequest(t, step.verb, step.request())); err == nil && s.Running() {
						continue
					}
					s.Wait(t)
					restart()
					cni(t, s, step.verb, step.request()).WantStatus(t, http.StatusOK) // the runtime repeats it
				}
				if _, err := os.Stat(file); err == nil { // it is killed later, by the background, or never
					s.Kill(t)
					restart()
				}
				waitWarm(t, n, s, 2, 4)
			})
		}
	}
}

// What pods that have ended leave in cooldown is released; no DEL of them comes any more.
func TestReleaseAllOfKeptWarmLeases(t *testing.T) {
	t.Parallel()
	n := containerNode(t)
	n.Flags = append(n.Flags, "--release-delay=1h")
	s := n.Start(t, "--warm-leases=2")
	waitWarm(t, n, s, 2, 2)
	ended, runs := container{"one", "eth0"}, container{"two", "eth0"}
	addContainer(t, s, ended)
	addContainer(t, s, runs)
	s.Stop(t)
	s = n.Start(t, "--warm-leases=0")
	harness.Eventually(t, "the leases that no pod has to be released", func() error {
		list, err := s.TryList()
		if len(list) != 2 {
			err = errors.Join(err, fmt.Errorf("%d attachments", len(list)))
		}
		return err
	})
	cni(t, s, "del", ended.request()).WantStatus(t, http.StatusOK)
	wantState(t, s, ended.owner(), "cooldown")
	out := n.Command(t, "release", "--all", "--yes")
	if out.ExitCode != 1 || !strings.Contains(out.Stderr, "1 containers have leases") || strings.Contains(out.Stderr, ended.owner()) {
		t.Errorf("release --all while a pod runs: %+v", out)
	}
	cni(t, s, "del", runs.request()).WantStatus(t, http.StatusOK)
	wantCommand(t, n, command{line: "release --all --yes"})
	waitWarm(t, n, s, 0, 0)
	s.Stop(t)
	wantUninstall(t, n, 0, "removed")
}
