package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/delegated-ipam/delegated-ipam/pkg/unixsock"
)

// Socket is what was seen of the sidecar's socket and its folder.
type Socket struct {
	// Options are where and for whom it should be, Callers who may call.
	Options unixsock.Options
	Callers unixsock.Callers
	// Invalid is why the options cannot work.
	Invalid error
	// There tells that something is at the path, with this mode and group.
	There bool
	Mode  fs.FileMode
	GID   int
	// Exposed is why others could put a socket in its place; nil if they cannot.
	Exposed error
	// Folder is the mount that its folder is on.
	Folder Mount
}

func lookAtSocket(o unixsock.Options, callers unixsock.Callers) Socket {
	s := Socket{Options: o, Callers: callers, Invalid: o.Validate(), Folder: mountOf(filepath.Dir(o.Path))}
	if err := unixsock.CheckParentMode(o.Path); !errors.Is(err, fs.ErrNotExist) {
		s.Exposed = err
	}
	if info, err := os.Lstat(o.Path); err == nil {
		s.There, s.Mode = true, info.Mode()
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			s.GID = int(st.Gid)
		}
	}
	return s
}

func (s Socket) findings() []Finding {
	var all []Finding
	add := func(state State, seen, do string) {
		all = append(all, Finding{Check: CheckSocket, State: state, Seen: seen, Do: do})
	}
	if s.Invalid != nil {
		add(Error, s.Invalid.Error(), "mend --socket-path or --socket-group; the sidecar does not start with them")
	}
	if s.Exposed != nil && !s.Folder.inEmptyDir() {
		add(Warning, s.Exposed.Error(), "take the right to write to the folder from others (chmod o-w)")
	}
	mode := s.Options.Mode
	if s.There {
		mode = s.Mode
	}
	switch {
	case s.There && mode.Type() != fs.ModeSocket:
		add(Error, fmt.Sprintf("%s is no socket (%s)", s.Options.Path, mode.Type()), "remove it, or name another path with --socket-path")
	case mode.Perm()&0o002 != 0:
		add(Warning, fmt.Sprintf("everybody may open %s (mode %04o): each user of the node can connect and ask for the status, and only the UID keeps them from more", s.Options.Path, uint32(mode.Perm())),
			"take that right away with --socket-mode=0660, and name those who need it with --socket-group")
	}
	if len(all) == 0 {
		add(OK, s.text(mode.Perm()), "")
	}
	return all
}

// text says who may open the socket and who may call.
func (s Socket) text(mode fs.FileMode) string {
	where := fmt.Sprintf("%s will have mode %04o", s.Options.Path, uint32(mode))
	if s.There {
		where = fmt.Sprintf("%s has mode %04o, group %d", s.Options.Path, uint32(mode), s.GID)
	}
	who := []string{"root", "the sidecar's own user"}
	for _, uid := range s.Callers.UIDs {
		who = append(who, fmt.Sprintf("user %d", uid))
	}
	for _, gid := range s.Callers.GIDs {
		who = append(who, fmt.Sprintf("group %d", gid))
	}
	return where + "; may call: " + strings.Join(who, ", ")
}
