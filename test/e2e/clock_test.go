package e2e

import (
	"net/http"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// A clock that was a year ahead has written a deadline. It has been set right since.
func TestDeadlineFromClockAhead(t *testing.T) {
	t.Parallel()
	ahead := time.Now().AddDate(1, 0, 0).Format(time.RFC3339Nano)
	for name, tt := range map[string]struct {
		// prepare leaves a record with the deadline, under options that are long.
		prepare func(t *testing.T, s *harness.Sidecar)
		before  []string
		edit    func(record map[string]any)
		after   []string
	}{
		"the end of a release delay": {
			func(t *testing.T, s *harness.Sidecar) {
				s.Release(t, s.Allocate(t, harness.Request{Owner: "router"}).Addresses()...)
			},
			[]string{"--release-delay=1h"},
			func(record map[string]any) { record["releaseAt"] = ahead },
			[]string{"--release-delay=1s"},
		},
		"an expiration": {
			func(t *testing.T, s *harness.Sidecar) { s.Allocate(t, harness.Request{Owner: "router", Expire: true}) },
			[]string{"--ipam-expiration=1h"},
			func(record map[string]any) { record["expiration"].(map[string]any)["deadline"] = ahead },
			[]string{"--ipam-expiration=1s"},
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
			wantGone(t, s, "router")
			wantLeases(t, n, 0)
		})
	}
}

// The profile says how long a call may still act, so that is the longest time to
// wait for, also when a clock ahead has written a later one.
func TestLateCallTimeFromClockAhead(t *testing.T) {
	t.Parallel()
	n, server := centralNode(t, 1)
	s := n.Start(t)
	held := s.Allocate(t, harness.Request{Owner: "router"}).Addresses()
	s.Kill(t)
	ahead := time.Now().AddDate(1, 0, 0).Format(time.RFC3339Nano)
	n.EditRecords(t, func(record map[string]any) {
		for _, c := range record["invocations"].([]any) {
			c.(map[string]any)["addActsUntil"] = ahead
		}
	})

	s = n.Start(t)
	s.TryRelease(t, held[0]).WantStatus(t, http.StatusOK)
	wantGone(t, s, "router")
	if got := server.Holds(t); len(got) != 0 {
		t.Errorf("the server holds %q; want nothing", got)
	}
}
