package doctor

import (
	"fmt"
	"path/filepath"

	"github.com/delegated-ipam/delegated-ipam/pkg/journal"
)

// StateDir is what was seen of --state-dir.
type StateDir struct {
	Folder
	// Real is its path without symbolic links, as far as it is there.
	Real string
	// InPod tells that one looks from within a pod.
	InPod bool
	// Refused is why the sidecar would not take it.
	Refused error
}

// lookAtStateDir looks from within a pod or not. ours tells that this process has the
// sidecar's user, as far as is known, without which it cannot judge whose the folder is.
func lookAtStateDir(path string, inPod, ours bool) StateDir {
	s := StateDir{Folder: lookAtFolder(path), InPod: inPod}
	if ours {
		s.Refused = journal.CheckDir(path)
	}
	s.Real = s.At
	if real, err := filepath.EvalSymlinks(s.At); err == nil {
		s.Real = real
	}
	if below, err := filepath.Rel(s.At, s.Path); err == nil {
		s.Real = filepath.Join(s.Real, below)
	}
	return s
}

// volatile are file systems of memory: they are empty after a reboot.
var volatile = []string{"tmpfs", "ramfs", "devtmpfs"}

// wiped are the folders that Cilium's init container removes with all that is in
// them if the chart's cleanState is set, and that `cilium-dbg post-uninstall-cleanup`
// does (Cilium, cilium-dbg/cmd/post_uninstall_cleanup.go).
var wiped = []string{"/var/run/cilium", "/run/cilium", "/var/lib/cilium"}

const durableAdvice = "name a folder on the node's disk with --state-dir, such as /var/lib/delegated-ipam, and in a pod mount it from the host (hostPath); stop the sidecar and copy the folder first"

func (s StateDir) findings() []Finding {
	bad := func(do, format string, args ...any) []Finding {
		return append([]Finding{{Check: CheckStateDir, State: Error, Seen: fmt.Sprintf(format, args...), Do: do}}, s.room("")...)
	}
	if s.Refused != nil {
		return bad("give the sidecar a folder of its own user, or run doctor as the sidecar's", "%s", s.Refused)
	}
	if why := s.lost(); why != "" {
		return bad(durableAdvice, "%s %s", s.Path, why)
	}
	if why := s.writable(); why != "" {
		return bad("let the sidecar's user write to it, or run doctor as that user", "%s", why)
	}
	seen := s.At
	if s.At != filepath.Clean(s.Path) {
		seen = fmt.Sprintf("%s is not there yet; %s", s.Path, s.At)
	}
	if s.Mount.Type != "" {
		seen += " lasts and can be written to (" + s.Mount.Type + ")"
	} else {
		seen += " can be written to; whether it lasts could not be told, because its mount is not to be seen"
	}
	return append([]Finding{{Check: CheckStateDir, State: OK, Seen: seen}}, s.room("")...)
}

// lost says by what the folder is lost; empty if by nothing that is known. A pod's root
// is the container's own, whatever its type. An overlay alone says nothing: it can be
// what the whole node stands on, and a hostPath of that is one, too.
func (s StateDir) lost() string {
	for _, dir := range wiped {
		if below, err := filepath.Rel(dir, s.Real); err == nil && filepath.IsLocal(below) {
			return fmt.Sprintf("lies in %s, which Cilium's init container removes if the chart's cleanState is set, and so does cilium-dbg post-uninstall-cleanup", dir)
		}
	}
	for _, t := range volatile {
		if s.Mount.Type == t {
			return fmt.Sprintf("is on a %s: a reboot loses it", t)
		}
	}
	switch {
	case s.InPod && s.Mount.Point == "/":
		return fmt.Sprintf("is on this container's own file system (%s): it goes with the container", s.Mount.Type)
	case s.Mount.inEmptyDir():
		return "is in an emptyDir: it goes with the pod"
	}
	return ""
}
