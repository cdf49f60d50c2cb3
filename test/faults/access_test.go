package faults

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

const (
	foreignUID   = 70001
	otherUID     = 70002
	foreignGroup = 70003
)

func TestAccess(t *testing.T) {
	t.Parallel()
	st := newStats(t, accessControl)
	if os.Geteuid() != 0 {
		harness.Skipf(t, "only root can connect as another user")
	}
	foreign := harness.User{UID: foreignUID, GID: foreignUID, Groups: []uint32{foreignGroup}}
	tests := map[string]struct {
		flags   []string
		user    harness.User
		allowed bool
	}{
		"root":                              {user: harness.User{}, allowed: true},
		"foreign user":                      {user: foreign},
		"foreign user in root's group":      {user: harness.User{UID: foreignUID, GID: 0}},
		"allowed user":                      {flags: []string{"--allow-uids=1,70001"}, user: foreign, allowed: true},
		"not the allowed user":              {flags: []string{"--allow-uids=1,70002"}, user: foreign},
		"member of an allowed group":        {flags: []string{"--allow-gids=70003"}, user: foreign, allowed: true},
		"primary group allowed":             {flags: []string{"--allow-gids=70001"}, user: foreign, allowed: true},
		"UID equals the allowed group":      {flags: []string{"--allow-gids=70002"}, user: foreign},
		"group equals the allowed UID":      {flags: []string{"--allow-uids=70003"}, user: foreign},
		"allowed user, other group allowed": {flags: []string{"--allow-uids=70001", "--allow-gids=70009"}, user: foreign, allowed: true},
		"socket group only":                 {flags: []string{"--socket-group=70003"}, user: foreign},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st.countCase(t)
			n := nodeWith(t)
			harness.Must(t, os.Chmod(n.Dir, 0o711)) // search permission for the socket
			s := n.Start(t, append(tt.flags, "--socket-mode=0666")...)
			held := s.AllocateFor(t, "router")
			before := n.Snapshot(t)

			for _, request := range [][2]string{
				{http.MethodGet, "/v1/ipam"},
				{http.MethodPost, "/v1/ipam?owner=router"},
				{http.MethodPost, "/v1/ipam?owner=thief"},
				{http.MethodPost, "/v1/ipam/" + held[0] + "?owner=router"},
				{http.MethodDelete, "/v1/ipam/" + held[0]},
				{"post", "/v1/ipam?owner=thief"},
				{http.MethodPost, "/v1/healthz"},
				{http.MethodGet, "/v1/healthz/../ipam"},
			} {
				a := s.DoAs(t, tt.user, request[0], request[1])
				if refused := a.Status == http.StatusForbidden; refused == tt.allowed || refused && !strings.Contains(string(a.Body), "--allow-uids") {
					t.Errorf("%s was answered %s; want it allowed: %t", request, a, tt.allowed)
				}
			}
			if !tt.allowed {
				before.WantSame(t, n.Snapshot(t))
				wantHeld(t, s, "router", held)
			}
			// This is the last request: it may start a write to the state directory.
			if a := s.DoAs(t, tt.user, http.MethodGet, "/v1/healthz"); a.Status != http.StatusOK {
				t.Errorf("GET /v1/healthz was answered %s; want 200 for every user", a)
			}
		})
	}
}

// With --health-details=authorized a user who may not call the API gets only the state.
func TestHealthDetails(t *testing.T) {
	t.Parallel()
	st := newStats(t, accessControl)
	if os.Geteuid() != 0 {
		harness.Skipf(t, "only root can connect as another user")
	}
	for details, all := range map[string]bool{"all": true, "authorized": false} {
		t.Run(details, func(t *testing.T) {
			t.Parallel()
			st.countCase(t)
			n := nodeWith(t)
			harness.Must(t, os.Chmod(n.Dir, 0o711)) // search permission for the socket
			s := n.Start(t, "--socket-mode=0666", "--health-details="+details)
			held := s.AllocateFor(t, "router")[0]
			foreign := s.DoAs(t, harness.User{UID: foreignUID, GID: foreignUID}, http.MethodGet, "/v1/healthz")
			if shown := strings.Contains(string(foreign.Body), held) && strings.Contains(string(foreign.Body), n.ConfDir); foreign.Status != http.StatusOK || shown != all {
				t.Errorf("a refused caller got %s; want details: %t", foreign, all)
			}
			if state := "{\"cilium\":{\"state\":\"Ok\"}}\n"; !all && string(foreign.Body) != state {
				t.Errorf("a refused caller got %q; want %q", foreign.Body, state)
			}
			if own := s.DoAs(t, harness.User{}, http.MethodGet, "/v1/healthz"); !strings.Contains(string(own.Body), held) {
				t.Errorf("root got %s; want the details", own)
			}
		})
	}
}

func TestAccessToOtherUsersSidecar(t *testing.T) {
	t.Parallel()
	newStats(t, accessControl).countCase(t)
	setpriv, err := exec.LookPath("setpriv")
	if os.Geteuid() != 0 || err != nil {
		harness.Skipf(t, "root and setpriv (util-linux) are needed to run as another user: %v", err)
	}
	n := nodeWith(t)
	// The directory of the binary under test may be readable by root only.
	n.Program = filepath.Join(n.Dir, "delegated-ipam")
	data, err := os.ReadFile(harness.Failpoints(t))
	harness.Must(t, err)
	harness.WriteProgram(t, n.Program, data)
	harness.Must(t, os.Chown(n.Dir, foreignUID, foreignUID))
	harness.Must(t, os.Chmod(n.Dir, 0o711))
	n.Wrapper = []string{setpriv, fmt.Sprintf("--reuid=%d", foreignUID), fmt.Sprintf("--regid=%d", foreignUID), "--clear-groups"}
	s := n.Start(t, "--socket-mode=0666")

	for name, c := range map[string]struct {
		user harness.User
		want int
	}{
		"its own user": {harness.User{UID: foreignUID, GID: otherUID}, http.StatusCreated},
		"root":         {harness.User{}, http.StatusCreated},
		"foreign user": {harness.User{UID: otherUID, GID: foreignUID}, http.StatusForbidden},
	} {
		if a := s.DoAs(t, c.user, http.MethodPost, "/v1/ipam?owner=router"); a.Status != c.want {
			t.Errorf("%s was answered %s; want %d", name, a, c.want)
		}
	}
}

func TestSocketDir(t *testing.T) {
	t.Parallel()
	st := newStats(t, accessControl)
	t.Run("owned by another user", func(t *testing.T) {
		t.Parallel()
		st.countCase(t)
		if os.Geteuid() != 0 {
			harness.Skipf(t, "chown needs root")
		}
		n := nodeWith(t)
		foreignDir := filepath.Join(n.Dir, "foreignDir")
		harness.Must(t, os.Mkdir(foreignDir, 0o755))
		harness.Must(t, os.Chown(foreignDir, foreignUID, foreignUID))
		s := n.Launch(t, "--socket-path="+filepath.Join(foreignDir, "ipam.sock"))
		wantStartFailure(t, s, foreignDir)
	})
	for kind, mode := range map[string]os.FileMode{"world-writable": 0o777, "group-writable": 0o775} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			st.countCase(t)
			n := nodeWith(t)
			harness.Must(t, os.Chmod(n.Dir, mode))
			s := n.Start(t)
			harness.Eventually(t, "a warning about "+n.Dir, func() error {
				if !strings.Contains(s.Log(), "directory "+n.Dir+" is "+kind) {
					return errors.New(s.Log())
				}
				return nil
			})
		})
	}
}

func TestNoNetworkSockets(t *testing.T) {
	t.Parallel()
	newStats(t, accessControl).countCase(t)
	n := nodeWith(t)
	s := n.Start(t)
	s.AllocateFor(t, "router")
	inodes := socketInodes(t, s)
	if len(inodes) == 0 {
		t.Fatal("the sidecar has no socket; the test proves nothing")
	}
	for _, protocol := range []string{"tcp", "tcp6", "udp", "udp6", "raw", "raw6"} {
		for _, line := range socketLines(t, s, protocol) {
			// Each line of proc_pid_net(5) has the inode as its tenth field.
			if fields := strings.Fields(line); len(fields) > 9 && slices.Contains(inodes, fields[9]) {
				t.Errorf("the sidecar has a %s socket: %s", protocol, line)
			}
		}
	}
	// The search by inode finds its unix socket.
	found := 0
	for _, line := range socketLines(t, s, "unix") {
		if fields := strings.Fields(line); len(fields) > 6 && slices.Contains(inodes, fields[6]) {
			found++
		}
	}
	if found == 0 {
		t.Error("the unix socket is not found by its inode")
	}
}
