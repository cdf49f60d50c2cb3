package e2e

import (
	"net/http"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// A plugin that has left its process group, ignores SIGTERM and hangs takes no slot for longer than its
// time limit, and does not delay the end of the sidecar. Before, two of them took both slots for as
// long as they ran.
func TestEscapedPlugin(t *testing.T) {
	t.Parallel()
	n, plugin := scriptedNode(t, "scripted", nil)
	s := n.Start(t, "--enable-ipv6=false", "--plugin-timeout=5s", "--max-plugin-processes=2")
	const escapes = `{"leaveGroup":true,"ignoreTerm":true,"hang":true}`
	owners := []string{"first", "second"}
	answers := make(chan harness.Response)
	for _, owner := range owners {
		plugin.SetOwnerScript(t, "ADD", owner, escapes)
		go func() { answers <- s.TryAllocate(t, harness.Request{Owner: owner}) }()
	}
	for range owners {
		(<-answers).WantError(t, http.StatusBadGateway, "did not end within 5s")
	}
	s.AllocateFor(t, "health")
	s.Stop(t)
}
