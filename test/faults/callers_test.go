package faults

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

const (
	strangerUID = 70001
	otherUID    = 70002
	theirGroup  = 70003
)

func TestOnlyThoseWhoMayCallAreServedAndOthersTouchNothing(t *testing.T) {
	t.Parallel()
	count := newTally(t, whoMayCall)
	if os.Geteuid() != 0 {
		cannot(t, "only root can call in the name of another user")
	}
	stranger := harness.User{UID: strangerUID, GID: strangerUID, Groups: []uint32{theirGroup}}
	tests := map[string]struct {
		flags []string
		user  harness.User
		may   bool
	}{
		"root":                               {user: harness.User{}, may: true},
		"a stranger":                         {user: stranger},
		"a stranger in root's group":         {user: harness.User{UID: strangerUID, GID: 0}},
		"a named user":                       {flags: []string{"--allow-uids=1,70001"}, user: stranger, may: true},
		"another than the named user":        {flags: []string{"--allow-uids=1,70002"}, user: stranger},
		"a member of a named group":          {flags: []string{"--allow-gids=70003"}, user: stranger, may: true},
		"one whose first group is named":     {flags: []string{"--allow-gids=70001"}, user: stranger, may: true},
		"one whose number is a named group":  {flags: []string{"--allow-gids=70002"}, user: stranger},
		"one whose group is a named user's":  {flags: []string{"--allow-uids=70003"}, user: stranger},
		"a named user beside a named group":  {flags: []string{"--allow-uids=70001", "--allow-gids=70009"}, user: stranger, may: true},
		"nobody named beside a named socket": {flags: []string{"--socket-group=70003"}, user: stranger},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			count.watch(t)
			n := nodeWith(t)
			must(t, os.Chmod(n.Dir, 0o711)) // the way to the socket
			s := n.Start(t, append(tt.flags, "--socket-mode=0666")...)
			held := s.AllocateFor(t, "router")
			before := n.Snapshot(t)

			for _, request := range [][2]string{
				{http.MethodGet, "/v1/ipam"},
				{http.MethodPost, "/v1/ipam?owner=router"},
				{http.MethodPost, "/v1/ipam?owner=thief"},
				{http.MethodPost, "/v1/ipam/" + held[0] + "?owner=router"},
				{http.MethodDelete, "/v1/ipam/" + held[0]},
				{http.MethodPost, "/v1/healthz"},
				{http.MethodGet, "/v1/healthz/../ipam"},
			} {
				a := s.DoAs(t, tt.user, request[0], request[1])
				if refused := a.Status == http.StatusForbidden; refused == tt.may || refused && len(a.Body) > 0 {
					t.Errorf("%s is answered %s; want it to be served: %t", request, a, tt.may)
				}
			}
			if !tt.may {
				before.WantSame(t, n.Snapshot(t))
				wantHeld(t, s, "router", held)
			}
			// Last: it may try whether the state folder can be written, longer than it is
			// waited for.
			if a := s.DoAs(t, tt.user, http.MethodGet, "/v1/healthz"); a.Status != http.StatusOK {
				t.Errorf("GET /v1/healthz is answered %s; want 200 for everybody", a)
			}
		})
	}
}

func TestASidecarOfAnotherUserServesThatUserAndRoot(t *testing.T) {
	t.Parallel()
	newTally(t, whoMayCall).watch(t)
	setpriv, err := exec.LookPath("setpriv")
	if os.Geteuid() != 0 || err != nil {
		harness.Skipf(t, "root and setpriv (util-linux) are needed to run as another user: %v", err)
	}
	n := nodeWith(t)
	// The binary under test may be where only root can read it.
	n.Program = filepath.Join(n.Dir, "delegated-ipam")
	data, err := os.ReadFile(harness.Failpoints(t))
	must(t, err)
	must(t, os.WriteFile(n.Program, data, 0o755))
	must(t, os.Chown(n.Dir, strangerUID, strangerUID))
	must(t, os.Chmod(n.Dir, 0o711))
	n.Wrapper = []string{setpriv, fmt.Sprintf("--reuid=%d", strangerUID), fmt.Sprintf("--regid=%d", strangerUID), "--clear-groups"}
	s := n.Start(t, "--socket-mode=0666")

	for name, c := range map[string]struct {
		user harness.User
		want int
	}{
		"its own user": {harness.User{UID: strangerUID, GID: otherUID}, http.StatusCreated},
		"root":         {harness.User{}, http.StatusCreated},
		"a stranger":   {harness.User{UID: otherUID, GID: strangerUID}, http.StatusForbidden},
	} {
		if a := s.DoAs(t, c.user, http.MethodPost, "/v1/ipam?owner=router"); a.Status != c.want {
			t.Errorf("%s is answered %s; want %d", name, a, c.want)
		}
	}
}

func TestTheSocketsFolderIsLookedAt(t *testing.T) {
	t.Parallel()
	count := newTally(t, whoMayCall)
	t.Run("one of another user is refused", func(t *testing.T) {
		t.Parallel()
		count.watch(t)
		if os.Geteuid() != 0 {
			cannot(t, "only root can give a folder to another user")
		}
		n := nodeWith(t)
		theirs := filepath.Join(n.Dir, "theirs")
		must(t, os.Mkdir(theirs, 0o755))
		must(t, os.Chown(theirs, strangerUID, strangerUID))
		s := n.Launch(t, "--socket-path="+filepath.Join(theirs, "ipam.sock"))
		if code := s.Wait(t); code == 0 || !strings.Contains(s.Log(), theirs) {
			t.Errorf("it ended with status %d; want a failure that names %s:\n%s", code, theirs, s.Log())
		}
	})
	t.Run("one that everybody may write to is told of", func(t *testing.T) {
		t.Parallel()
		count.watch(t)
		n := nodeWith(t)
		must(t, os.Chmod(n.Dir, 0o777))
		s := n.Start(t)
		harness.Eventually(t, "the warning that "+n.Dir+" is world-writable", func() error {
			if !strings.Contains(s.Log(), "directory "+n.Dir+" is world-writable") {
				return errors.New(s.Log())
			}
			return nil
		})
	})
}

func TestNothingListensOnTheNetwork(t *testing.T) {
	t.Parallel()
	newTally(t, whoMayCall).watch(t)
	n := nodeWith(t)
	s := n.Start(t)
	s.AllocateFor(t, "router")
	inodes := socketInodes(t, s)
	if len(inodes) == 0 {
		t.Fatal("the sidecar has no socket at all: nothing is shown")
	}
	for _, protocol := range []string{"tcp", "tcp6", "udp", "udp6", "raw", "raw6"} {
		for _, line := range socketLines(t, s, protocol) {
			// Each line of proc_pid_net(5) has the inode as its tenth field.
			if fields := strings.Fields(line); len(fields) > 9 && slices.Contains(inodes, fields[9]) {
				t.Errorf("the sidecar has a %s socket: %s", protocol, line)
			}
		}
	}
	// It does have those on which it serves, so looking by inode finds them.
	found := 0
	for _, line := range socketLines(t, s, "unix") {
		if fields := strings.Fields(line); len(fields) > 6 && slices.Contains(inodes, fields[6]) {
			found++
		}
	}
	if found == 0 {
		t.Error("not even the unix socket is found by its inode")
	}
}

// socketInodes are the sockets among the sidecar's descriptors (proc_pid_fd(5)).
func socketInodes(t *testing.T, s *harness.Sidecar) []string {
	t.Helper()
	var inodes []string
	for _, target := range openFiles(t, s) {
		if inode, ok := strings.CutPrefix(target, "socket:["); ok {
			inodes = append(inodes, strings.TrimSuffix(inode, "]"))
		}
	}
	return inodes
}

// socketLines are the sockets of the sidecar's network namespace.
func socketLines(t *testing.T, s *harness.Sidecar, protocol string) []string {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", s.PID(), protocol))
	if os.IsNotExist(err) {
		return nil // a kernel without IPv6
	}
	must(t, err)
	return strings.Split(string(data), "\n")
}

// ourFile is what an owner may make appear in the state folder.
var ourFile = regexp.MustCompile(`^state/attachments/cilium-agent-[a-z0-9-]{1,50}\.json$`)

// filesBelow are the paths of everything in a node's folder but what the scripted
// plugin writes.
func filesBelow(t *testing.T, n *harness.Node) []string {
	t.Helper()
	var all []string
	must(t, filepath.WalkDir(n.Dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name, err := filepath.Rel(n.Dir, path); err == nil && !strings.HasPrefix(name, "bin/") {
			all = append(all, name)
		}
		return nil
	}))
	return all
}
