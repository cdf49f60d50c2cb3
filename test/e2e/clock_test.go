package e2e

import (
	"net/http"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// The record has a deadline that was written while the clock was a year ahead.
func TestDeadlineFromClockAhead(t *testing.T) {
	t.Parallel()
	ahead := time.Now().AddDate(1, 0, 0).Format(time.RFC3339Nano)
	for name, tt := range map[string]struct {
		// prepare creates a record with a deadline, under the options of before.
		prepare func(t *testing.T, s *harness.Sidecar)
		before  []string
		edit    func(record map[string]any)
		after   []string
	}{
		"release delay": {
			func(t *testing.T, s *harness.Sidecar) { s.Release(t, s.AllocateFor(t, "router")...) },
			[]string{"--release-delay=1h"},
			func(record map[string]any) { record["releaseAt"] = ahead },
			[]string{"--release-delay=200ms"},
		},
		"expiration": {
			func(t *testing.T, s *harness.Sidecar) { s.Allocate(t, harness.Request{Owner: "router", Expire: true}) },
			[]string{"--ipam-expiration=1h"},
			func(record map[string]any) { record["expiration"].(map[string]any)["deadline"] = ahead },
			[]string{"--ipam-expiration=200ms"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := nodeWith(t, harness.DualStack())
			s := n.Start(t, tt.before...)
			tt.prepare(t, s)
			s.Kill(t)
			n.EditRecords(t, tt.edit)

			s = n.Start(t, tt.after...)
			waitReleased(t, s, "router")
			wantLeaseCount(t, n, 0)
		})
	}
}

// The sidecar waits for a late call at most for the time in the profile, even if the record has a
// later time that was written while the clock was ahead.
func TestLateCallTimeFromClockAhead(t *testing.T) {
	t.Parallel()
	n, server, s := startCentral(t, 1)
	held := s.AllocateFor(t, "router")
	s.Kill(t)
	ahead := time.Now().AddDate(1, 0, 0).Format(time.RFC3339Nano)
	n.EditRecords(t, func(record map[string]any) {
		for _, c := range record["invocations"].([]any) {
			c.(map[string]any)["addActsUntil"] = ahead
		}
	})

	s = n.Start(t)
	s.TryRelease(t, held[0]).WantStatus(t, http.StatusOK)
	waitReleased(t, s, "router")
	if got := server.Holds(t); len(got) != 0 {
		t.Errorf("the server holds %q; want nothing", got)
	}
}
