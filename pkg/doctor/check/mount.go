package check

import (
	"path/filepath"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// Mount is one line of mountinfo (proc_pid_mountinfo(5)); its zero value is an unknown one.
type Mount struct {
	// Type is the type of the file system, such as ext4.
	Type string
	// Point is the mount point. Root is the mounted folder of the file system: for a
	// folder that is bind-mounted into a container, its path on the file system.
	Point, Root string
}

// MountOf returns the mount of a folder. It is unknown with a kernel before 5.8, which does
// not report it, and without /proc.
func MountOf(path string) Mount {
	var st unix.Statx_t
	if unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_MNT_ID, &st) != nil || st.Mask&unix.STATX_MNT_ID == 0 {
		return Mount{}
	}
	all, err := procfs.GetMounts()
	if err != nil {
		return Mount{}
	}
	for _, m := range all {
		if uint64(m.MountID) == st.Mnt_id {
			return Mount{Type: m.FSType, Point: m.MountPoint, Root: m.Root}
		}
	}
	return Mount{}
}

// emptyDir is in the path of each emptyDir volume below the kubelet's folder
// (Kubernetes, pkg/volume/emptydir).
const emptyDir = "/volumes/kubernetes.io~empty-dir/"

// InEmptyDir reports whether it is in a volume that is removed with its pod. A volume in
// memory (medium: Memory) has the Type tmpfs.
func (m Mount) InEmptyDir() bool { return strings.Contains(m.Root+"/", emptyDir) }

// nodeVolume is in the path of each volume of Docker and Podman (Docker, volume/local): in
// a node that is a container, as with kind, /var is one.
const nodeVolume = "/_data/"

// SourceOf returns the path of a folder on the file system of its mount, below the volume
// if it is in one; empty if it is unknown.
func (m Mount) SourceOf(path string) string {
	below, err := filepath.Rel(m.Point, path)
	if m.Point == "" || err != nil || !filepath.IsLocal(below) {
		return ""
	}
	source := filepath.Join(m.Root, below)
	if _, inVolume, ok := strings.Cut(source, nodeVolume); ok {
		return "/" + inVolume
	}
	return source
}
