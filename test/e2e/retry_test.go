package e2e

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestReleaseRetryNotPostponed(t *testing.T) {
	t.Parallel()
	n, server := centralNode(t, 1)
	s := n.Start(t)
	held := s.Allocate(t, harness.Request{Owner: "router"}).Addresses()
	before := server.CallCount(t, "DEL")
	server.SetScript(t, "DEL", `{"error":{"code":100,"msg":"not now"}}`)
	asked := 0
	harness.Eventually(t, "a DEL that no client has asked for", func() error {
		s.TryRelease(t, held[0]).WantStatus(t, http.StatusInternalServerError)
		asked++
		if got := server.CallCount(t, "DEL") - before; got <= asked {
			return fmt.Errorf("%d releases were asked for, and %d DELs were called", asked, got)
		}
		return nil
	})

	server.ClearScript(t, "DEL")
	s.TryRelease(t, held[0])
	wantGone(t, s, "router")
}
