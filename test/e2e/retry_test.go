package e2e

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestAClientThatAsksAgainAndAgainDoesNotPostponeTheBackgroundRetryOfARelease(t *testing.T) {
	t.Parallel()
	n, server := centralNode(t, 1)
	s := n.Start(t)
	held := s.Allocate(t, harness.Request{Owner: "router"}).Addresses()
	before := server.Calls(t, "DEL")
	server.Script(t, "DEL", `{"error":{"code":100,"msg":"not now"}}`)
	asked := 0
	harness.Eventually(t, "a DEL that no client has asked for", func() error {
		s.TryRelease(t, held[0]).Want(t, http.StatusInternalServerError)
		asked++
		if got := server.Calls(t, "DEL") - before; got <= asked {
			return fmt.Errorf("%d releases were asked for, and %d DELs were called", asked, got)
		}
		return nil
	})

	server.Unscript(t, "DEL")
	s.TryRelease(t, held[0])
	wantGone(t, s, "router")
}
