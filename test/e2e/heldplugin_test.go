package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestPluginMoved(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n *harness.Node) {
		s := n.Start(t)
		held := s.AllocateFor(t, "router")
		released := s.AllocateFor(t, "health")
		s.Stop(t)
		moved := filepath.Join(n.Dir, "opt")
		harness.Must(t, os.Rename(n.BinDir, moved))
		n.BinDir = moved

		s = n.Start(t, "--verify-interval=0s")
		wantAddresses(t, s.AllocateFor(t, "router"), held)
		s.Release(t, released...)
		wantLeased(t, n, held...)
		wantFindings(t, n, 0, nil)
	})
}

func TestPluginOfHeldMissing(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.IPv4Only())
	n.Flags = append(n.Flags, "--enable-ipv6=false")
	s := n.Start(t)
	held := s.AllocateFor(t, "router")
	s.Stop(t)
	// The network now has another plugin, so only the attachment needs host-local.
	removeFile(t, filepath.Join(n.BinDir, "host-local"))
	n.InstallPlugin(t, "static")
	n.WriteNetwork(t, "05-cilium", harness.Network{Name: "pods", CNIVersion: "1.0.0", Plugin: "static", IPAM: map[string]any{
		"addresses": []map[string]string{{"address": "10.15.0.9/24"}},
	}})

	s = n.Launch(t)
	s.WaitServing(t)
	s.WaitNotReady(t, "host-local", n.BinDir, "--cni-bin-dir")
	if o := n.Command(t, "probe", "ready", "--timeout=1m"); o.ExitCode != 1 || !strings.Contains(o.Stderr, "host-local") {
		t.Errorf("probe ready ended with %d: %s", o.ExitCode, o.Stderr)
	}
	doctorWithoutOptions(t, n).wantProblems(t, []string{"error sidecar", "error held-plugins"}, "host-local")

	n.InstallPlugin(t, "host-local")
	s.WaitReady(t)
	s.TryRelease(t, held[0]).WantStatus(t, http.StatusOK)
	wantLeased(t, n)
}

// The pool and its attachments have the same plugin, whose absence is reported once.
func TestPluginOfPoolAndHeldMissing(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.IPv4Only())
	n.Flags = append(n.Flags, "--enable-ipv6=false")
	s := n.Start(t)
	s.AllocateFor(t, "router")
	removeFile(t, filepath.Join(n.BinDir, "host-local"))
	s.WaitNotReady(t, "conflist: network", "no longer exists")
	o := n.Command(t, "probe", "ready", "--timeout=1m")
	if o.ExitCode != 1 || strings.Count(o.Stderr, "failed to find plugin") != 1 || !strings.Contains(o.Stderr, "attachments cannot be verified or released") {
		t.Errorf("probe ready ended with %d: %s; want the cause once, and its effect", o.ExitCode, o.Stderr)
	}
}

// A wrapper named host-local keeps its leases in another directory than the configuration names.
func TestLookupOffForWrapper(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.IPv4Only())
	harness.Must(t, os.Rename(filepath.Join(n.BinDir, "host-local"), filepath.Join(n.Dir, "real")))
	n.InstallScript(t, "host-local", fmt.Sprintf("#!/bin/sh\nsed 's#%s#%s/moved#' | %s/real\n", n.StoreDir, n.Dir, n.Dir))
	n.Store = nil
	s := n.Start(t, "--enable-ipv6=false", "--verify-interval=0s")
	held := s.AllocateFor(t, "router")
	wantAddresses(t, s.AllocateFor(t, "router"), held)
	if o := n.Command(t, "status"); !strings.Contains(o.Stdout, "check (lookup is off for network pods: ADD returned "+held[0]) {
		t.Errorf("status does not explain why lookup is off:\n%s", o.Stdout)
	}
	d := doctorWithoutOptions(t, n)
	if got := d.problems(); len(got) == 0 || got[len(got)-1] != "warning verification" {
		t.Errorf("found %q; want a warning of verification: %+v", got, d.found)
	}
	if got := strings.Count(s.Log(), "lookup is off for network pods"); got != 1 {
		t.Errorf("the log has the line %d times; want once:\n%s", got, s.Log())
	}
}
