package check

import (
	"path/filepath"
	"strings"

	"github.com/delegated-ipam/delegated-ipam/internal/files"
)

// emptyDir is in the path of each emptyDir volume below the kubelet's directory
// (Kubernetes, pkg/volume/emptydir).
const emptyDir = "/volumes/kubernetes.io~empty-dir/"

// InEmptyDir reports whether it is in a volume that is removed with its pod. A volume in
// memory (medium: Memory) has the Type tmpfs.
func InEmptyDir(m files.Mount) bool { return strings.Contains(m.Root+"/", emptyDir) }

// nodeVolume is in the path of each volume of Docker and Podman (Docker, volume/local): in
// a node that is a container, as with kind, /var is one.
const nodeVolume = "/_data/"

// SourceOf returns the path of a directory on the file system of its mount, below the volume
// if it is in one; empty if it is unknown.
func SourceOf(m files.Mount, path string) string {
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
