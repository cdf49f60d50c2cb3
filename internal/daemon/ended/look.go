package ended

import (
	"maps"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/files"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// look is one look at the node.
type look struct {
	own      string
	mountOf  func(string) files.Mount
	shown    map[string]bool
	report   report
	suspects map[attachment.Key]suspect
	// visible has the directories that containers have named, and whether they show the host's namespaces.
	visible map[string]bool
}

func (s *Sweeper) look(now time.Time) *look {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &look{own: s.own, mountOf: s.mountOf, shown: maps.Clone(s.shown), report: s.report, suspects: s.suspects, visible: map[string]bool{}}
	if now.Sub(l.report.received) > MaxReportAge {
		l.report = report{}
	}
	return l
}

// ended reports whether a container seems to have ended, and that by the runtime, which is asked first:
// of a container that it knows a DEL will come.
func (l *look) ended(r attachment.Record) (ended, unknown bool) {
	if !attachment.OfContainer(r.Owner) || r.State != attachment.Held && r.State != attachment.Adding || len(r.Invocations) == 0 {
		return false, false
	}
	path := netNS(r, l.own)
	shown := path != "" && l.shows(filepath.Dir(path))
	if l.report.sandboxes != nil && r.Created.Before(l.report.received) {
		if c := r.Container(); call.OfSandbox(c.Args, c.ContainerID) {
			// Processes of a namespace that exists may run, although the runtime has lost its state.
			return !l.report.sandboxes[c.ContainerID] && !isNamespace(path), true
		}
	}
	return shown && missing(path), false
}

// shows reports whether a directory shows the namespaces that a runtime creates on the host. The last ADD
// proves it, or else its mount, in which the host's mounts appear. Otherwise a directory that is not the
// host's, or was covered by a later mount, would show none, and every pod of the node would lose its
// address.
func (l *look) shows(dir string) bool {
	if shown, ok := l.visible[dir]; ok {
		return shown
	}
	shown, ok := l.shown[dir]
	if !ok {
		m := l.mountOf(dir)
		// The file system of the daemon's container can be a slave, too.
		shown = m.Receives && m.Point != "/"
	}
	l.visible[dir] = shown
	return shown
}

func (l *look) hiddenDirectories() []string {
	var hidden []string
	for dir, shown := range l.visible {
		if !shown {
			hidden = append(hidden, dir)
		}
	}
	slices.Sort(hidden)
	return hidden
}

// NamespaceExists returns a function that reports whether the network namespace of a container exists. own is
// the namespace of owners without one.
func NamespaceExists(own string) func(attachment.Record) bool {
	return func(r attachment.Record) bool { return isNamespace(netNS(r, own)) }
}

// isNamespace reports whether a path is a network namespace. A file that is left of one, or a directory that
// is not the runtime's, has none.
func isNamespace(path string) bool {
	var s unix.Statfs_t
	return path != "" && unix.Statfs(path, &s) == nil && s.Type == unix.NSFS_MAGIC
}
