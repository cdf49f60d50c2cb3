package nodecheck

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/doctor/check"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal"
)

// StateDir checks that the state directory is writable and durable.
var StateDir = check.Check{Name: "state-dir", Run: func(o *check.Observations) []check.Finding {
	if o.Config == nil {
		return nil
	}
	return []check.Finding{collectStateDir(o).finding()}
}}

// stateDir is the state directory.
type stateDir struct {
	check.Dir
	// real is its path without symbolic links, as far as it exists.
	real string
	// inPod means that this process runs in a pod.
	inPod bool
	// rejected is why the sidecar would not use it.
	rejected error
}

func collectStateDir(o *check.Observations) stateDir {
	s := stateDir{Dir: o.StateDir, inPod: o.Config.InPod}
	if o.Environment.SameUser() { // only the sidecar's user can judge the owner
		s.rejected = journal.CheckDir(s.Path)
	}
	s.real = s.At
	if real, err := filepath.EvalSymlinks(s.At); err == nil {
		s.real = real
	}
	if below, err := filepath.Rel(s.At, s.Path); err == nil {
		s.real = filepath.Join(s.real, below)
	}
	return s
}

// volatile are the file systems in memory, which are empty after a reboot.
var volatile = []string{"tmpfs", "ramfs", "devtmpfs"}

// erased are the directories that Cilium's init container removes if the chart's cleanState is
// set, and that `cilium-dbg post-uninstall-cleanup` removes (Cilium,
// cilium-dbg/cmd/post_uninstall_cleanup.go).
var erased = []string{"/var/run/cilium", "/run/cilium", "/var/lib/cilium"}

const durableRemedy = "set --state-dir to a directory on the node's disk, such as /var/lib/delegated-ipam, in a pod mounted from the host (hostPath); stop the sidecar and copy the directory first"

func (s stateDir) finding() check.Finding {
	if s.rejected != nil {
		return check.Fail("use a directory of the sidecar's user, or run doctor as that user", "%s", s.rejected)
	}
	if reason := s.notDurable(); reason != "" {
		return check.Fail(durableRemedy, "%s %s", s.Path, reason)
	}
	if problem := s.WriteProblem(); problem != "" {
		return check.Fail("give the sidecar's user write permission, or run doctor as that user", "%s", problem)
	}
	text := s.At
	if s.At != filepath.Clean(s.Path) {
		text = fmt.Sprintf("%s does not exist yet; %s", s.Path, s.At)
	}
	if s.Mount.Type == "" {
		return check.Pass("%s is writable; it is unknown whether it is durable, because its mount is not visible", text)
	}
	return check.Pass("%s is durable and writable (%s)", text, s.Mount.Type)
}

// notDurable returns the event that removes the directory; empty if none is known. In a pod, the
// root is the container's own file system, of any type. An overlay alone is not
// evidence: it can be the file system of the whole node, and so of a hostPath.
func (s stateDir) notDurable() string {
	for _, dir := range erased {
		if below, err := filepath.Rel(dir, s.real); err == nil && filepath.IsLocal(below) {
			return fmt.Sprintf("is in %s, which Cilium's init container removes if the chart's cleanState is set, as does cilium-dbg post-uninstall-cleanup", dir)
		}
	}
	switch {
	case slices.Contains(volatile, s.Mount.Type):
		return fmt.Sprintf("is on a %s: a reboot erases it", s.Mount.Type)
	case s.inPod && s.Mount.Point == "/":
		return fmt.Sprintf("is on this container's own file system (%s), which is removed with the container", s.Mount.Type)
	case check.InEmptyDir(s.Mount):
		return "is in an emptyDir, which is removed with the pod"
	}
	return ""
}
