package faults

import (
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestRefusedCallersLog(t *testing.T) {
	t.Parallel()
	newStats(t, accessControl).countCase(t)
	const requests, limit = 200, 16 << 10
	n := nodeWith(t)
	n.Flags = append(n.Flags, "--log-level=info")
	harness.Must(t, os.Chmod(n.Dir, 0o711)) // search permission for the socket
	s := n.Start(t, "--socket-mode=0666")
	before := len(s.Log())
	foreign := harness.User{UID: foreignUID, GID: foreignUID}
	long := strings.Repeat("x", 7<<10)
	for range requests {
		for path, want := range map[string]int{
			"/v1/ipam/" + long:             http.StatusForbidden,
			"/v1/healthz?%zz&pool=" + long: http.StatusOK,
		} {
			if a := s.DoAs(t, foreign, http.MethodGet, path); a.Status != want {
				t.Fatalf("%.20s is answered %.200s; want %d", path, a, want)
			}
		}
	}
	s.Stop(t)
	log := s.Log()[before:]
	if !strings.Contains(log, "Caller rejected") || !strings.Contains(log, "repeated=199") {
		t.Errorf("the log lacks the refusals or their number:\n%.2000s", log)
	}
	if len(log) > limit {
		t.Errorf("the log grew by %d bytes; want at most %d", len(log), limit)
	}
}
