package e2e

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

const (
	// hour is a time in seconds in which a call may act after its process; it does not elapse
	// within a test.
	hour = 3600
	// hangThenRunLate is a call that the server accepts and executes later, without a response.
	hangThenRunLate = `{"times":1,"late":true,"hang":true}`
	// hangUntilPowerOff is the same; its process ends with powerOff.
	hangUntilPowerOff = `{"times":1,"late":true,"gate":"power-off"}`

	// shortTimeout limits plugin calls that hang.
	shortTimeout = "--plugin-timeout=5s"
)

func TestLateDEL(t *testing.T) {
	t.Parallel()
	for ending, script := range map[string]string{
		"timeout":       hangThenRunLate,
		"silent exit 1": `{"times":1,"late":true,"exitCode":1}`,
	} {
		for name, releaseFirst := range map[string]bool{"of a release": true, "before the first ADD": false} {
			t.Run(name+"/"+ending, func(t *testing.T) {
				t.Parallel()
				_, server, s := startCentral(t, hour, shortTimeout)
				var first []string
				if releaseFirst {
					first = s.AllocateFor(t, "router")
				}
				server.SetScript(t, "DEL", script)
				if releaseFirst {
					s.TryRelease(t, first[0]).WantStatus(t, http.StatusInternalServerError)
				}

				held := s.AllocateFor(t, "router")
				wantLateCallsHarmless(t, server, held)
				wantAddresses(t, s.AllocateFor(t, "router"), held)
			})
		}
	}
}

func TestLateDELAfterCrash(t *testing.T) {
	t.Parallel()
	for crash, tt := range map[string]struct {
		script string
		flags  []string
	}{
		"kill":   {hangThenRunLate, []string{shortTimeout}},
		"reboot": {hangUntilPowerOff, nil},
	} {
		t.Run(crash, func(t *testing.T) {
			t.Parallel()
			n, server, s := startCentral(t, hour, tt.flags...)
			other, released := s.AllocateFor(t, "health"), s.AllocateFor(t, "router")
			server.SetScript(t, "DEL", tt.script)
			sendInBackground(t, server, s, http.MethodDelete, "/v1/ipam/"+released[0])
			if crash == "kill" {
				s.Kill(t)
			} else {
				powerOff(t, n, server, s)
			}

			s = n.Start(t, tt.flags...)
			held := s.AllocateFor(t, "router")
			wantLateCallsHarmless(t, server, append(other, held...))
			wantAddresses(t, s.AllocateFor(t, "router"), held)
		})
	}
}

func TestLateADDAfterReboot(t *testing.T) {
	t.Parallel()
	// The late ADD is executed within this time even on a busy machine.
	const outlivesSeconds = 20
	n, server, s := startCentral(t, outlivesSeconds)
	server.SetScript(t, "ADD", hangUntilPowerOff)
	sendInBackground(t, server, s, http.MethodPost, "/v1/ipam?owner=router")
	powerOff(t, n, server, s)
	dels := server.CallCount(t, "DEL")

	s = n.Start(t)
	server.WaitCall(t, "DEL", dels) // for the interrupted ADD
	server.RunLateCalls(t)
	if held := server.Holds(t); len(held) != 1 {
		t.Fatalf("the server holds %q; want the address of the late ADD", held)
	}
	harness.Eventually(t, "the address of the late ADD to be released", func() error {
		if held, list := server.Holds(t), s.List(t); len(held) > 0 || len(list) > 0 {
			return fmt.Errorf("the server holds %q, the list has %+v", held, list)
		}
		return nil
	})
}

// powerOff ends the daemon and the plugin's process, and changes the boot ID.
func powerOff(t *testing.T, n *harness.Node, server harness.Central, s *harness.Daemon) {
	t.Helper()
	s.Kill(t)
	server.Open(t, "power-off")
	n.Reboot(t)
}

// sendInBackground sends a request, waits until the server has accepted its plugin call and
// ignores the response.
func sendInBackground(t *testing.T, server harness.Central, s *harness.Daemon, method, path string) {
	t.Helper()
	go func() { _, _ = s.Try(method, path) }()
	server.WaitLateCalls(t, 1)
}

// startCentral starts a daemon over a central server whose calls may act after their process.
func startCentral(t *testing.T, outlivesSeconds int, flags ...string) (*harness.Node, harness.Central, *harness.Daemon) {
	t.Helper()
	n := harness.NewNode(t)
	server := n.InstallCentral(t, outlivesSeconds, nil, nil)
	return n, server, n.Start(t, flags...)
}

// wantLateCallsHarmless executes the late calls: the server must still hold the addresses,
// and pods must get other ones.
func wantLateCallsHarmless(t *testing.T, server harness.Central, held []string) {
	t.Helper()
	if server.LateCalls(t) == 0 {
		t.Fatal("no call is late; the test proves nothing")
	}
	server.RunLateCalls(t)
	wantNoPodGets(t, server, held)
}
