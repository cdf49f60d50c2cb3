package e2e

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestReleaseRetryNotPostponed(t *testing.T) {
	t.Parallel()
	_, server, s := startCentral(t, 1)
	held := s.AllocateFor(t, "router")
	before := server.CallCount(t, "DEL")
	server.SetScript(t, "DEL", `{"error":{"code":100,"msg":"not now"}}`)
	requested := 0
	harness.Eventually(t, "a DEL in the background", func() error {
		s.TryRelease(t, held[0]).WantStatus(t, http.StatusInternalServerError)
		requested++
		if got := server.CallCount(t, "DEL") - before; got <= requested {
			return fmt.Errorf("%d releases were requested, and %d DELs were called", requested, got)
		}
		return nil
	})

	server.ClearScript(t, "DEL")
	s.TryRelease(t, held[0])
	waitReleased(t, s, "router")
}
