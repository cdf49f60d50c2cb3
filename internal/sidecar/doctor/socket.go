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
	// invalid is why the options cannot be used. group is why a sidecar with the user and groups of
	// this process could not start; nil if it can, or runs already.
	invalid, group error
	// exists means that there is a file at the path, with this mode and group.
	exists bool
	mode   fs.FileMode
	gid    int
	// exposed is why other users could replace the socket; nil if they cannot, or only the pod has
	// access to its directory.
	exposed error
}

// checkSocket checks that the socket can be created and is accessible only to authorized callers.
func checkSocket(o *Observations, r *report) {
	options := o.Config.SocketOptions()
	s := socket{invalid: options.Validate()}
	if o.Status == nil {
		s.group = options.CheckGroup()
	}
	if !inEmptyDir(files.MountOf(filepath.Dir(options.Path))) { // only the pod has access to it
		s.exposed = unixsock.CheckParentMode(options.Path)
	}
	if info, err := os.Lstat(options.Path); err == nil {
		s.exists, s.mode = true, info.Mode()
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			s.gid = int(st.Gid)
		}
	}
	s.check(*o.Config, r)
}

func (s socket) check(c sidecar.Config, r *report) {
	if s.invalid != nil {
		r.fail("correct --socket-path or --socket-group: the sidecar does not start with them", "%s", s.invalid)
	}
	if s.group != nil {
		r.fail("make the sidecar's process a member of the group: it does not start otherwise. Run doctor with the sidecar's user and groups", "%s", s.group)
	}
	if s.exposed != nil && !errors.Is(s.exposed, fs.ErrNotExist) {
		r.warn("remove the write permission of group and others from the directory (chmod go-w)", "%s", s.exposed)
	}
	mode := c.SocketMode
	if s.exists {
		mode = s.mode
	}
	permissions := uint32(mode.Perm())
	access := fmt.Sprintf("does not exist yet and gets mode %04o", permissions)
	if s.exists {
		access = fmt.Sprintf("has mode %04o, group %d", permissions, s.gid)
	}
	switch {
	case s.exists && mode.Type() != fs.ModeSocket:
		r.fail("remove it, or name another path with --socket-path", "%s is not a socket (%s)", c.SocketPath, mode.Type())
	case permissions&0o002 != 0:
		r.warn("set --socket-mode=0660, and --socket-group for other authorized users",
			"%s is world-writable (mode %04o): each user of the node can connect and read the status; only the check of the UID prevents more", c.SocketPath, permissions)
	}
	if r.clean() {
		callers := []string{"root", "the sidecar's own user"}
		for _, uid := range c.AllowUIDs {
			callers = append(callers, fmt.Sprintf("user %d", uid))
		}
		for _, gid := range c.AllowGIDs {
			callers = append(callers, fmt.Sprintf("group %d", gid))
		}
		r.ok("%s %s; authorized callers: %s", c.SocketPath, access, strings.Join(callers, ", "))
	}
}
