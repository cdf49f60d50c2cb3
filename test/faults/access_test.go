package faults

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/failpoint"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

const (
	foreignUID   = 70001
	otherUID     = 70002
	foreignGroup = 70003
)

type accessCase struct {
	flags   []string
	user    harness.User
	allowed bool
	// health is the response to a request for health; empty for one with all details.
	health string
}

//evidence:operate/security the API without being a caller, or with a peer unknown to the kernel
func TestAccess(t *testing.T) {
	foreign := harness.User{UID: foreignUID, GID: foreignUID, Groups: []uint32{foreignGroup}}
	hidden := []string{"--health-details=authorized"}
	eachCase(t, accessControl, map[string]accessCase{
		"root":                                  {allowed: true, flags: hidden},
		"foreign user":                          {user: foreign},
		"foreign user, details for the allowed": {user: foreign, flags: hidden, health: "{\"cilium\":{\"state\":\"Ok\"}}\n"},
		"foreign user in root's group":          {user: harness.User{UID: foreignUID, GID: 0}},
		"allowed user":                          {flags: []string{"--allow-uids=1,70001"}, user: foreign, allowed: true},
		"member of an allowed group":            {flags: []string{"--allow-gids=70003"}, user: foreign, allowed: true},
		"primary group allowed":                 {flags: []string{"--allow-gids=70001"}, user: foreign, allowed: true},
		"UID equals the allowed group":          {flags: []string{"--allow-gids=70002", "--allow-uids=70003"}, user: foreign},
		"socket group only":                     {flags: []string{"--socket-group=70003"}, user: foreign},
	}, func(t *testing.T, _ *stats, c accessCase) {
		needRoot(t)
		n := nodeWith(t)
		check.Must(t, os.Chmod(n.Dir, 0o711)) // search permission for the socket
		s := n.Start(t, append(c.flags, "--socket-mode=0666")...)
		held := s.AllocateFor(t, "router")
		before := n.Snapshot(t)

		for _, request := range [][2]string{
			{http.MethodGet, "/v1/ipam"},
			{http.MethodPost, "/v1/ipam?owner=thief"},
			{http.MethodPost, "/v1/ipam/" + held[0] + "?owner=router"},
			{http.MethodDelete, "/v1/ipam/" + held[0]},
			{"post", "/v1/ipam?owner=thief"},
			{http.MethodGet, "/v1/healthz/../ipam"},
		} {
			a := s.DoAs(t, c.user, request[0], request[1])
			if refused := a.Status == http.StatusForbidden; refused == c.allowed || refused && !strings.Contains(string(a.Body), "--allow-uids") {
				t.Errorf("%s was answered %s; want it allowed: %t", request, a, c.allowed)
			}
		}
		if !c.allowed {
			before.WantSame(t, n.Snapshot(t))
			wantHeld(t, s, "router", held)
		}
		// This is the last request: it may start a write to the state directory.
		a := s.DoAs(t, c.user, http.MethodGet, "/v1/healthz")
		if body := string(a.Body); a.Status != http.StatusOK || c.health != "" && body != c.health || c.health == "" && !strings.Contains(body, n.ConfDir) {
			t.Errorf("GET /v1/healthz was answered %s; want 200 and %q, or all details", a, c.health)
		}
	})
}

func TestAccessToOtherUsersDaemon(t *testing.T) {
	oneCase(t, accessControl)
	needRoot(t)
	n := nodeWith(t)
	// The directory of the binary under test may be readable by root only.
	n.Program = filepath.Join(n.Dir, "delegated-ipam")
	data, err := os.ReadFile(harness.Failpoints(t))
	check.Must(t, err)
	harness.WriteProgram(t, n.Program, data)
	check.Must(t, os.Chown(n.Dir, foreignUID, foreignUID))
	check.Must(t, os.Chmod(n.Dir, 0o711))
	n.Wrapper = []string{needProgram(t, "setpriv"), fmt.Sprintf("--reuid=%d", foreignUID), fmt.Sprintf("--regid=%d", foreignUID), "--clear-groups"}
	s := n.Start(t, "--socket-mode=0666")
	for user, want := range map[int]int{foreignUID: http.StatusCreated, 0: http.StatusCreated, otherUID: http.StatusForbidden} {
		if a := s.DoAs(t, harness.User{UID: user, GID: foreignUID}, http.MethodPost, "/v1/ipam?owner=router"); a.Status != want {
			t.Errorf("user %d was answered %s; want %d", user, a, want)
		}
	}
}

func TestSocketDirWarning(t *testing.T) {
	oneCase(t, accessControl)
	n := nodeWith(t)
	check.Must(t, os.Chmod(n.Dir, 0o777))
	n.Start(t).WaitLog(t, "directory "+n.Dir+" is world-writable")
}

func TestNoNetworkSockets(t *testing.T) {
	oneCase(t, accessControl)
	s := nodeWith(t).Start(t)
	s.AllocateFor(t, "router")
	for _, protocol := range []string{"tcp", "tcp6", "udp", "udp6", "raw", "raw6"} {
		if found := sockets(t, s, protocol); len(found) > 0 {
			t.Errorf("the daemon has the %s sockets %q", protocol, found)
		}
	}
	if len(sockets(t, s, "unix")) == 0 {
		t.Error("the search does not find the unix socket")
	}
}

// The client of an attachment without an owner cannot repeat its request.
func TestAnonymousOwnerAfterCrash(t *testing.T) {
	t.Parallel()
	f := newFixture(t, scenario{})
	f.start()
	f.setPlan(failpoint.Plan{Point: failpoint.ResponseDue, Visit: 1})
	if a, err := f.daemon.Try(http.MethodPost, "/v1/ipam"); err == nil {
		t.Fatalf("got the response %s; want the daemon killed before it", a)
	}
	f.daemon.Wait(t)
	f.clearPlan()
	f.start()
	if n := len(f.node.Leases(t)); n != 2 {
		t.Fatalf("the plugin has %d leases; want one of each family", n)
	}
	out := f.node.Command(t, "gc", "--owner=anonymous/*", "--older-than=1ns", "--yes")
	if left := f.node.Leases(t); out.ExitCode != 0 || len(left) > 0 {
		t.Errorf("gc ended with %d and left %v: %s", out.ExitCode, left, out.Stderr)
	}
}
