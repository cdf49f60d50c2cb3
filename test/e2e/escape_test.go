package e2e

import (
	"net/http"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// Plugins that have left their process groups are terminated, and others run in their place.
//
//evidence:operate/security it hangs, ignores SIGTERM, leaves its process group, or a child that keeps its output open
func TestEscapedPlugin(t *testing.T) {
	t.Parallel()
	n, plugin := scriptedNode(t, "scripted", nil)
	s := n.Start(t, "--enable-ipv6=false", "--plugin-timeout=2s", "--max-plugin-processes=3") // one is reserved for pods
	owners := []string{"first", "second"}
	answers := make(chan harness.Response)
	for _, owner := range owners {
		plugin.SetOwnerScript(t, "ADD", owner, `{"leaveGroup":true,"hang":true}`)
		go func() { answers <- s.TryAllocate(t, harness.Request{Owner: owner}) }()
	}
	for range owners {
		(<-answers).WantError(t, http.StatusBadGateway, "did not end within 2s")
	}
	s.AllocateFor(t, "health")
	s.Stop(t)
}
