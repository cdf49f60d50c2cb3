package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/statedir"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/unixsock"
	"github.com/delegated-ipam/delegated-ipam/internal/files"
)

// directory describes a directory or, if it does not exist, its nearest existing parent, in which
// it would be created.
type directory struct {
	path string
	// at is the directory that the other fields describe. err is why they are not set.
	at  string
	err error
	// readOnly means that its file system is mounted read-only, and notWritable is why this
	// user cannot write to it.
	readOnly    bool
	notWritable error
	// free is the free space for this user in bytes. inodes is the number of inodes of the
	// file system, 0 if it is not fixed, and freeInodes the number of free ones.
	free, inodes, freeInodes uint64
	mount                    files.Mount
}

// collectDirectory describes a directory. It writes nothing.
func collectDirectory(path string) directory {
	d := directory{path: path, at: filepath.Clean(path)}
	for {
		info, err := os.Stat(d.at)
		if err == nil && info.IsDir() {
			break
		}
		if err == nil {
			err = &fs.PathError{Op: "stat", Path: d.at, Err: unix.ENOTDIR}
		}
		parent := filepath.Dir(d.at)
		if !errors.Is(err, fs.ErrNotExist) || parent == d.at {
			d.err = err
			return d
		}
		d.at = parent
	}
	var st unix.Statfs_t
	if err := unix.Statfs(d.at, &st); err != nil {
		d.err = &fs.PathError{Op: "statfs", Path: d.at, Err: err}
		return d
	}
	d.readOnly = st.Flags&unix.ST_RDONLY != 0
	d.notWritable = unix.Faccessat(unix.AT_FDCWD, d.at, unix.W_OK|unix.X_OK, unix.AT_EACCESS)
	d.free = st.Bavail * uint64(st.Bsize)
	d.inodes, d.freeInodes = st.Files, st.Ffree
	d.mount = files.MountOf(d.at)
	return d
}

// writeProblem returns why the directory cannot be written to; empty if it can.
func (d directory) writeProblem() string {
	switch {
	case d.err != nil:
		return d.err.Error()
	case d.readOnly:
		return d.at + " is on a file system that is mounted read-only"
	case d.notWritable != nil:
		return d.at + " is not writable for this user: " + d.notWritable.Error()
	}
	return ""
}

// inEmptyDir reports whether a mount is a volume that is removed with its pod, by the path of each
// emptyDir below the kubelet's directory (Kubernetes, pkg/volume/emptydir). A volume in memory
// (medium: Memory) has the Type tmpfs.
func inEmptyDir(m files.Mount) bool {
	return strings.Contains(m.Root+"/", "/volumes/kubernetes.io~empty-dir/")
}

// source returns the path of the directory on the file system of its mount, below the volume
// if it is in one; empty if it is unknown.
func (d directory) source() string {
	below, err := filepath.Rel(d.mount.Point, d.at)
	if d.mount.Point == "" || err != nil || !filepath.IsLocal(below) {
		return ""
	}
	source := filepath.Join(d.mount.Root, below)
	// The path of each volume of Docker and Podman has this (Docker, volume/local): in a node that is a
	// container, as with kind, /var is one.
	if _, inVolume, ok := strings.Cut(source, "/_data/"); ok {
		return "/" + inVolume
	}
	return source
}

// checkSocket checks that other users of the node can neither connect to the socket nor replace it.
func checkSocket(o *Observations, r *report) {
	path, mode := o.Config.SocketPath, o.Config.SocketMode
	if !inEmptyDir(files.MountOf(filepath.Dir(path))) { // only the pod has access to it
		if err := unixsock.CheckParentMode(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			r.warn("remove the write permission of group and others from the directory (chmod go-w)", "%s", err)
		}
	}
	if info, err := os.Lstat(path); err == nil {
		mode = info.Mode()
	}
	if mode&0o002 != 0 {
		r.warn("set --socket-mode=0660, and --socket-group for other authorized users",
			"%s is world-writable (mode %04o): each user of the node can connect and read the status; only the check of the UID prevents more", path, mode.Perm())
	}
	r.clean("only owner and group can connect to %s (mode %04o)", path, mode.Perm())
}

// checkStateDir checks that the state directory is writable and durable.
func checkStateDir(o *Observations, r *report) {
	d := o.stateDir
	var rejected error
	if o.sameUser() { // only the daemon's user can judge the owner
		rejected = statedir.Check(d.path)
	}
	reason, problem := notDurable(d, o.Config.InPod), d.writeProblem()
	text := d.at
	if d.at != filepath.Clean(d.path) {
		text = fmt.Sprintf("%s does not exist yet; %s", d.path, d.at)
	}
	switch {
	case rejected != nil:
		r.fail("use a directory of the daemon's user, or run doctor as that user", "%s", rejected)
	case reason != "":
		r.fail("set --state-dir to a directory on the node's disk, such as /var/lib/delegated-ipam, in a pod mounted from the host (hostPath); stop the daemon and copy the directory first",
			"%s %s", d.path, reason)
	case problem != "":
		r.fail("give the daemon's user write permission, or run doctor as that user", "%s", problem)
	case d.mount.Type == "":
		r.ok("%s is writable; it is unknown whether it is durable, because its mount is not visible", text)
	default:
		r.ok("%s is durable and writable (%s)", text, d.mount.Type)
	}
}

// volatile are the file systems in memory, which are empty after a reboot.
var volatile = []string{"tmpfs", "ramfs", "devtmpfs"}

// erased are the directories that Cilium's init container removes if the chart's cleanState is
// set, and that `cilium-dbg post-uninstall-cleanup` removes (Cilium,
// cilium-dbg/cmd/post_uninstall_cleanup.go).
var erased = []string{"/var/run/cilium", "/run/cilium", "/var/lib/cilium"}

// notDurable returns the event that removes the directory; empty if none is known. In a pod, the
// root is the container's own file system, of any type. An overlay alone is not
// evidence: it can be the file system of the whole node, and so of a hostPath.
func notDurable(d directory, inPod bool) string {
	real := d.at // and from there the path that does not exist yet
	if target, err := filepath.EvalSymlinks(d.at); err == nil {
		real = target
	}
	if below, err := filepath.Rel(d.at, d.path); err == nil {
		real = filepath.Join(real, below)
	}
	for _, dir := range erased {
		if below, err := filepath.Rel(dir, real); err == nil && filepath.IsLocal(below) {
			return fmt.Sprintf("is in %s, which Cilium's init container removes if the chart's cleanState is set, as does cilium-dbg post-uninstall-cleanup", dir)
		}
	}
	switch {
	case slices.Contains(volatile, d.mount.Type):
		return fmt.Sprintf("is on a %s: a reboot erases it", d.mount.Type)
	case inPod && d.mount.Point == "/":
		return fmt.Sprintf("is on this container's own file system (%s), which is removed with the container", d.mount.Type)
	case inEmptyDir(d.mount):
		return "is in an emptyDir, which is removed with the pod"
	}
	return ""
}

// checkDiskSpace checks that the journal and the plugins have free space.
func checkDiskSpace(o *Observations, r *report) {
	checkSpace(o.stateDir, r)
	for _, p := range o.pools {
		if p.known() && filepath.IsAbs(p.stateDir.path) {
			r.begin(p.name)
			checkSpace(p.stateDir, r)
		}
	}
}

// The limits of the two states. A record takes 4 KiB, with several invocations a multiple
// of that, and is written before the old one is removed; the file of an address takes one
// block, mostly 4 KiB. Below the limits of a warning, the addresses of a full node, some
// hundred, do not fit; below the limits of an error, the next few writes fail, which each
// allocation and release needs.
const (
	warnBytes, errorBytes   = 16 << 20, 1 << 20
	warnInodes, errorInodes = 1024, 64
)

func checkSpace(d directory, r *report) {
	if d.err != nil {
		return // reported by the check of the directory
	}
	limited := d.inodes > 0
	space := fmt.Sprintf("%d MiB", d.free>>20)
	if d.free < 10<<20 {
		space = fmt.Sprintf("%d KiB", d.free>>10)
	}
	if limited {
		space += fmt.Sprintf(" and %d inodes", d.freeInodes)
	}
	remedy := fmt.Sprintf("free space on the file system of %s: at least %d MiB and %d inodes; without it nothing can be allocated or released", d.at, warnBytes>>20, warnInodes)
	add := r.fail
	switch {
	case d.free < errorBytes, limited && d.freeInodes < errorInodes:
	case d.free < warnBytes, limited && d.freeInodes < warnInodes:
		add = r.warn
	default:
		r.ok("%s are free for %s", space, d.path)
		return
	}
	add(remedy, "%s are free for %s", space, d.path)
}
