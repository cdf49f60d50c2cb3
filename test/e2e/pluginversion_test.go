package e2e

import (
	"slices"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// Trap: below CNI 0.4.0 there is no CHECK, so an address cannot be verified.
func TestPluginWithoutCHECK(t *testing.T) {
	t.Parallel()
	n, plugin := scriptedNode(t, "scripted", nil)
	plugin.SetScript(t, "VERSION", `{"versions":["0.1.0","0.2.0","0.3.0","0.3.1"]}`)
	n.Flags = []string{"--enable-ipv6=false", "--verify-interval=0s"}
	s := n.Start(t)
	if got := s.Health(t).DelegatedIPAM.Pools[0].CNIVersion; got != "0.3.1" {
		t.Errorf("the CNI version in use is %s; want 0.3.1", got)
	}
	router := harness.Request{Owner: "router"}
	held := s.Allocate(t, router).Addresses()
	wantCalls(t, plugin, "DEL", "ADD")

	wantAddresses(t, s.Allocate(t, router).Addresses(), held)
	wantCalls(t, plugin, "DEL", "ADD")

	// Without CHECK the loss cannot be found.
	plugin.DropLeases(t)
	wantAddresses(t, s.Allocate(t, router).Addresses(), held)
	wantCalls(t, plugin, "DEL", "ADD")

	s.Stop(t)
	s = n.Start(t)
	wantAddresses(t, s.Allocate(t, router).Addresses(), held)
	s.Release(t, held...)
	wantCalls(t, plugin, "DEL", "ADD", "DEL")
}

// wantCalls compares the verbs of all calls, except VERSION, which every sidecar calls.
func wantCalls(t *testing.T, plugin harness.Scripted, want ...string) {
	t.Helper()
	got := slices.DeleteFunc(plugin.Verbs(t), func(verb string) bool { return verb == "VERSION" })
	if !slices.Equal(got, want) {
		t.Errorf("the plugin was called for %q; want %q", got, want)
	}
}
