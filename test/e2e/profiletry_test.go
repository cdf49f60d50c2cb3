package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// tryReport is the output of profile try -o json.
type tryReport struct {
	Proposal    map[string]any
	Steps       []struct{ Verb, Outcome string }
	Differences []struct {
		Field, Reason     string
		Profile, Proposal any
	}
	Leftovers []struct {
		ContainerID string `json:"container-id"`
		Command     string
	}
}

// try runs profile try on a node.
func try(t *testing.T, n *harness.Node, pluginType string, flags ...string) (tryReport, harness.CommandResult) {
	t.Helper()
	out := n.Command(t, append([]string{"profile", "try", pluginType, "-o", "json", "--cni-conf-dir=" + n.ConfDir, "--cni-bin-dir=" + n.BinDir}, flags...)...)
	var r tryReport
	if out.Stdout != "" {
		if err := json.Unmarshal([]byte(out.Stdout), &r); err != nil {
			t.Fatalf("%s: %v", out.Stdout, err)
		}
	}
	return r, out
}

// wantDifferences compares the differences, each as "field: proposal", and runs the command again
// with the proposal as a profile file: its facts are accepted, and differ from nothing.
func wantDifferences(t *testing.T, n *harness.Node, pluginType string, want []string, flags ...string) {
	t.Helper()
	r, out := try(t, n, pluginType, flags...)
	var got []string
	for _, d := range r.Differences {
		got = append(got, fmt.Sprintf("%s: %v", d.Field, d.Proposal))
		if d.Reason == "" {
			t.Errorf("the difference in %s has no reason", d.Field)
		}
	}
	if out.ExitCode != 0 || !slices.Equal(got, want) || len(r.Leftovers) != 0 {
		t.Fatalf("exit code %d, differences %q, leftovers %v; want 0 and the differences %q\n%s", out.ExitCode, got, r.Leftovers, want, out.Stderr)
	}
	data, err := json.Marshal(r.Proposal)
	check.Must(t, err)
	again, out := try(t, n, pluginType, append(flags, "--plugin-profile="+writeProfile(t, n, string(data)))...)
	if out.ExitCode != 0 || len(again.Differences) != 0 || asJSON(t, again.Proposal) != asJSON(t, r.Proposal) {
		t.Errorf("with the proposal as the profile: exit code %d, differences %v\n%s", out.ExitCode, again.Differences, out.Stderr)
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	check.Must(t, err)
	return string(data)
}

func TestProfileTryHostLocal(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n *harness.Node) {
		s := n.Start(t)
		held := s.AllocateFor(t, "router")
		wantDifferences(t, n, "host-local", nil)
		wantLeased(t, n, held...)
		wantLeaseCount(t, n, len(held))
		s.WaitConsistent(t)
	})
}

// static keeps nothing. Its CHECK accepts any address that is not configured, and CNI_ARGS adds an
// address to the configured ones.
func TestProfileTryStatic(t *testing.T) {
	t.Parallel()
	wantDifferences(t, staticNode(t), "static", []string{
		"verifyBy: nothing", "checkProves: nothing", "lost: map[]", "requests: [args.cni.ips runtimeConfig.ips]",
	})
}

func TestRealDHCPProfileTry(t *testing.T) {
	d := harness.NewDHCP(t, "10.77.0.10 10.77.0.14")
	wantDifferences(t, dhcpNode(t, d, ""), "dhcp", nil, "--cni-netns="+d.NetNS)
	harness.Eventually(t, "the release of each address", func() error {
		leases, err := d.Leases()
		if err == nil && len(leases) > 0 {
			err = fmt.Errorf("active: %v", leases)
		}
		return err
	})
}

// interruptingHostLocal sends a signal to its parent during the ADD of the second container ID.
const interruptingHostLocal = `#!/bin/sh
case "$CNI_COMMAND $CNI_CONTAINERID" in "ADD "*-2) kill -%s $PPID ;; esac
exec "$0.real"
`

func TestProfileTryInterrupted(t *testing.T) {
	t.Parallel()
	for _, signal := range []string{"INT", "TERM", "HUP"} {
		t.Run(signal, func(t *testing.T) {
			n := nodeWith(t, harness.DualStack())
			n.WrapPlugin(t, "host-local", fmt.Sprintf(interruptingHostLocal, signal))
			r, out := try(t, n, "host-local")
			if out.ExitCode != 1 || r.Proposal != nil || !strings.Contains(out.Stderr, "interrupted") {
				t.Errorf("exit code %d, proposal %v: %s; want 1, none, and that it was interrupted", out.ExitCode, r.Proposal, out.Stderr)
			}
			wantLeaseCount(t, n, 0)
		})
	}
}

// A killed run leaves what it held. Doctor recognizes it, and the next run prints the
// commands that release it.
func TestProfileTryKilled(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	plugin := n.WrapPlugin(t, "host-local", fmt.Sprintf(interruptingHostLocal, "KILL"))
	try(t, n, "host-local")
	harness.Eventually(t, "the orphaned ADD to end", func() error {
		leases, err := n.Store() // host-local creates a file before it writes it
		if err == nil && len(leases) != 4 {
			err = fmt.Errorf("got %d leases; want those of two IDs", len(leases))
		}
		return err
	})
	check.Must(t, os.Rename(plugin+".real", plugin))
	n.Start(t)
	found := n.Command(t, "doctor", "-o=json").Stdout
	if strings.Count(found, "of `profile try`") != 4 || strings.Contains(found, "leases of others") {
		t.Errorf("doctor: %s; want the four leases of `profile try`, and none of others", found)
	}
	r, next := try(t, n, "host-local")
	if next.ExitCode != 1 || len(r.Leftovers) != 2 || r.Proposal == nil {
		t.Fatalf("exit code %d, leftovers %v: %s; want 1, those of two IDs, and a proposal", next.ExitCode, r.Leftovers, next.Stderr)
	}
	for _, l := range r.Leftovers {
		if text, err := exec.Command("sh", "-c", l.Command).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", l.Command, err, text)
		}
	}
	wantLeaseCount(t, n, 0)
}
