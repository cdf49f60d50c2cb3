package faults

import (
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestRefusedCallersLog(t *testing.T) {
	t.Parallel()
	newStats(t, accessControl).countCase(t)
	// Each minute has at most two lines, of the first refusal and of the others.
	const requests, limitPerMinute = 200, 16 << 10
	n := nodeWith(t)
	n.Flags = append(n.Flags, "--log-level=info")
	harness.Must(t, os.Chmod(n.Dir, 0o711)) // search permission for the socket
	s := n.Start(t, "--socket-mode=0666")
	before, since := len(s.Log()), time.Now()
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
	logged := 0
	for line := range strings.Lines(log) {
		if !strings.Contains(line, "Caller rejected") {
			continue
		}
		if n := repeated.FindStringSubmatch(line); n != nil {
			more, err := strconv.Atoi(n[1])
			harness.Must(t, err)
			logged += more
		} else {
			logged++
		}
	}
	if logged != requests {
		t.Errorf("the log counts %d refusals; want %d:\n%.2000s", logged, requests, log)
	}
	if limit := limitPerMinute * (1 + int(time.Since(since)/time.Minute)); len(log) > limit {
		t.Errorf("the log grew by %d bytes; want at most %d", len(log), limit)
	}
}

// repeated finds how many refusals a line stands for.
var repeated = regexp.MustCompile(`repeated=(\d+)`)
