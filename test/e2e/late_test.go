package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

const (
	// hour is how long a call may act after its process, in seconds, where it acts
	// within a test for certain.
	hour = 3600
	// hangThenRunLate is a call that is accepted, not answered, and carried out later.
	hangThenRunLate = `{"times":1,"late":true,"hang":true}`
)

// shortTimeout is a time limit for plugin calls that are to be cut short.
const shortTimeout = "--plugin-timeout=1s"

// lateDELs are the ways in which a DEL ends without an answer and acts later.
func lateDELs() map[string]string {
	return map[string]string{
		"times out":            hangThenRunLate,
		"is killed":            `{"times":1,"late":true,"killSelf":9}`,
		"fails without a word": `{"times":1,"late":true,"exitCode":1}`,
	}
}

func TestLateDELOfRelease(t *testing.T) {
	t.Parallel()
	for name, script := range lateDELs() {
		t.Run("the DEL "+name, func(t *testing.T) {
			t.Parallel()
			n, server := centralNode(t, hour)
			s := n.Start(t, shortTimeout)
			first := s.Allocate(t, harness.Request{Owner: "router"}).Addresses()
			server.SetScript(t, "DEL", script)
			s.TryRelease(t, first[0]).WantStatus(t, http.StatusInternalServerError)

			held := s.Allocate(t, harness.Request{Owner: "router"}).Addresses()
			wantLateCallsHarmless(t, n, server, held)
			wantAddresses(t, s.Allocate(t, harness.Request{Owner: "router"}).Addresses(), held)
		})
	}
}

func TestLateDELBeforeFirstADD(t *testing.T) {
	t.Parallel()
	for name, script := range lateDELs() {
		t.Run("the DEL "+name, func(t *testing.T) {
			t.Parallel()
			n, server := centralNode(t, hour)
			s := n.Start(t, shortTimeout)
			server.SetScript(t, "DEL", script)

			held := s.Allocate(t, harness.Request{Owner: "router"}).Addresses()
			wantLateCallsHarmless(t, n, server, held)
			wantAddresses(t, s.Allocate(t, harness.Request{Owner: "router"}).Addresses(), held)
		})
	}
}

func TestLateDELOfUnknownPlugin(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t)
	plugin := n.InstallScripted(t, "example-ipam")
	network := harness.Network{Name: "pods", CNIVersion: "1.0.0", Plugin: "example-ipam", IPAM: map[string]any{"subnet": "10.15.0.0/24"}}
	n.WriteNetwork(t, "05-cilium", network)
	n.Store = func() ([]oracle.Lease, error) { return plugin.LeasesByStableID(network.Name) }
	server := harness.Central{Scripted: plugin, Network: network, Pods: n.PodsOf(t, network)}
	s := n.Start(t, shortTimeout, "--enable-ipv6=false")
	first := s.Allocate(t, harness.Request{Owner: "router"}).Addresses()
	plugin.SetScript(t, "DEL", hangThenRunLate)
	s.TryRelease(t, first[0]).WantStatus(t, http.StatusInternalServerError)

	held := s.Allocate(t, harness.Request{Owner: "router"}).Addresses()
	wantLateCallsHarmless(t, n, server, held)
}

func TestLateDELAfterKill(t *testing.T) {
	t.Parallel()
	for name, begin := range callsInFlight() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, server := centralNode(t, hour)
			s := n.Start(t, shortTimeout)
			other := s.Allocate(t, harness.Request{Owner: "health"}).Addresses()
			begin(t, server, s, hangThenRunLate)
			s.Kill(t)

			s = n.Start(t, shortTimeout)
			held := s.Allocate(t, harness.Request{Owner: "router"}).Addresses()
			wantLateCallsHarmless(t, n, server, append(other, held...))
			wantAddresses(t, s.Allocate(t, harness.Request{Owner: "router"}).Addresses(), held)
		})
	}
}

func TestLateDELAfterReboot(t *testing.T) {
	t.Parallel()
	for name, begin := range callsInFlight() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, server := centralNode(t, hour)
			s := n.Start(t)
			other := s.Allocate(t, harness.Request{Owner: "health"}).Addresses()
			begin(t, server, s, hangUntilPowerOff)
			powerOff(t, n, server, s)

			s = n.Start(t)
			held := s.Allocate(t, harness.Request{Owner: "router"}).Addresses()
			wantLateCallsHarmless(t, n, server, append(other, held...))
			wantAddresses(t, s.Allocate(t, harness.Request{Owner: "router"}).Addresses(), held)
		})
	}
}

func TestLateADDAfterReboot(t *testing.T) {
	t.Parallel()
	const seconds = 10
	n, server := centralNode(t, seconds)
	s := n.Start(t)
	server.SetScript(t, "ADD", hangUntilPowerOff)
	sendInBackground(t, server, s, http.MethodPost, "/v1/ipam?owner=router")
	powerOff(t, n, server, s)
	dels := server.CallCount(t, "DEL")

	s = n.Start(t)
	harness.Eventually(t, "the ADD that was cut off to be followed by a DEL", func() error {
		if server.CallCount(t, "DEL") == dels {
			return errors.New("no DEL was called since the reboot")
		}
		return nil
	})
	server.RunLateCalls(t)
	if held := server.Holds(t); len(held) != 1 {
		t.Fatalf("the server holds %q; want what the late ADD has allocated", held)
	}
	harness.Eventually(t, "nothing to be left of the ADD that acted late", func() error {
		if held, list := server.Holds(t), s.List(t); len(held) > 0 || len(list) > 0 {
			return fmt.Errorf("the server holds %q, the list has %+v", held, list)
		}
		return nil
	})
}

// hangUntilPowerOff is a call that is accepted, carried out later, and whose process ends
// when the machine does.
const hangUntilPowerOff = `{"times":1,"late":true,"gate":"power-off"}`

// powerOff ends the sidecar and the plugin's process, and prepares another boot.
func powerOff(t *testing.T, n *harness.Node, server harness.Central, s *harness.Sidecar) {
	t.Helper()
	s.Kill(t)
	server.Open(t, "power-off")
	n.Reboot(t)
}

// callsInFlight bring the owner router to a DEL that is accepted and not carried out.
func callsInFlight() map[string]func(t *testing.T, server harness.Central, s *harness.Sidecar, script string) {
	return map[string]func(t *testing.T, server harness.Central, s *harness.Sidecar, script string){
		"in the DEL of a release": func(t *testing.T, server harness.Central, s *harness.Sidecar, script string) {
			held := s.Allocate(t, harness.Request{Owner: "router"}).Addresses()
			server.SetScript(t, "DEL", script)
			sendInBackground(t, server, s, http.MethodDelete, "/v1/ipam/"+held[0])
		},
		"in the first DEL of a new owner": func(t *testing.T, server harness.Central, s *harness.Sidecar, script string) {
			server.SetScript(t, "DEL", script)
			sendInBackground(t, server, s, http.MethodPost, "/v1/ipam?owner=router")
		},
	}
}

// sendInBackground sends a request whose plugin call is accepted and hangs. The sidecar
// is to be killed: no answer is waited for.
func sendInBackground(t *testing.T, server harness.Central, s *harness.Sidecar, method, path string) {
	t.Helper()
	go func() { _, _ = s.Try(method, path) }()
	server.WaitLateCalls(t, 1)
}

func centralNode(t *testing.T, outlivesSeconds int) (*harness.Node, harness.Central) {
	t.Helper()
	n := harness.NewNode(t)
	return n, n.InstallCentral(t, outlivesSeconds, nil, nil)
}

// wantLateCallsHarmless lets the late calls act: what is held stays the holders', and
// a pod gets something else.
func wantLateCallsHarmless(t *testing.T, n *harness.Node, server harness.Central, held []string) {
	t.Helper()
	if server.LateCalls(t) == 0 {
		t.Fatal("no call is late, so nothing is shown")
	}
	server.RunLateCalls(t)
	stored := server.Holds(t)
	for _, ip := range held {
		if !slices.Contains(stored, ip) {
			t.Errorf("%s is held, and after the late DEL the server holds %q only", ip, stored)
		}
	}
	for _, ip := range server.Pods.Add(t, "a-pod") {
		if slices.Contains(held, ip) {
			t.Errorf("a pod was given %s, which is held", ip)
		}
	}
}
