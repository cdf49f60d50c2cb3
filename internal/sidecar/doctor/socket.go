package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/delegated-ipam/delegated-ipam/internal/files"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/unixsock"
)

// socket describes the sidecar's socket and its directory.
type socket struct {
	options unixsock.Options
	// uids and gids are the authorized users and groups.
	uids, gids []int
	// invalid is why the options cannot be used.
	invalid error
	// group is why a sidecar with the user and groups of this process could not start; nil if it
	// can, or runs already.
	group error
	// exists means that there is a file at the path, with this mode and group.
	exists bool
	mode   fs.FileMode
	gid    int
	// exposed is why other users could replace the socket; nil if they cannot.
	exposed error
	// inEmptyDir means that only the pod has access to its directory.
	inEmptyDir bool
}

// checkSocket checks that the socket can be created and is accessible only to authorized callers.
func checkSocket(o *Observations, r *report) {
	s := collectSocket(*o.Config)
	if o.Status == nil {
		s.group = s.options.CheckGroup()
	}
	s.check(r)
}

func collectSocket(c sidecar.Config) socket {
	o := c.SocketOptions()
	s := socket{
		options: o, uids: c.AllowUIDs, gids: c.AllowGIDs, invalid: o.Validate(),
		inEmptyDir: inEmptyDir(files.MountOf(filepath.Dir(o.Path))),
	}
	if err := unixsock.CheckParentMode(o.Path); !errors.Is(err, fs.ErrNotExist) {
		s.exposed = err
	}
	if info, err := os.Lstat(o.Path); err == nil {
		s.exists, s.mode = true, info.Mode()
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			s.gid = int(st.Gid)
		}
	}
	return s
}

func (s socket) check(r *report) {
	if s.invalid != nil {
		r.fail("correct --socket-path or --socket-group: the sidecar does not start with them", "%s", s.invalid)
	}
	if s.group != nil {
		r.fail("make the sidecar's process a member of the group: it does not start otherwise. Run doctor with the sidecar's user and groups", "%s", s.group)
	}
	if s.exposed != nil && !s.inEmptyDir {
		r.warn("remove the write permission of group and others from the directory (chmod go-w)", "%s", s.exposed)
	}
	mode := s.options.Mode
	if s.exists {
		mode = s.mode
	}
	switch {
	case s.exists && mode.Type() != fs.ModeSocket:
		r.fail("remove it, or name another path with --socket-path", "%s is not a socket (%s)", s.options.Path, mode.Type())
	case mode.Perm()&0o002 != 0:
		r.warn("set --socket-mode=0660, and --socket-group for other authorized users",
			"%s is world-writable (mode %04o): each user of the node can connect and read the status; only the check of the UID prevents more", s.options.Path, uint32(mode.Perm()))
	}
	if r.clean() {
		r.ok("%s", s.access(mode.Perm()))
	}
}

// access describes which users can open the socket and which may call.
func (s socket) access(mode fs.FileMode) string {
	text := fmt.Sprintf("%s does not exist yet and gets mode %04o", s.options.Path, uint32(mode))
	if s.exists {
		text = fmt.Sprintf("%s has mode %04o, group %d", s.options.Path, uint32(mode), s.gid)
	}
	callers := []string{"root", "the sidecar's own user"}
	for _, uid := range s.uids {
		callers = append(callers, fmt.Sprintf("user %d", uid))
	}
	for _, gid := range s.gids {
		callers = append(callers, fmt.Sprintf("group %d", gid))
	}
	return text + "; authorized callers: " + strings.Join(callers, ", ")
}
