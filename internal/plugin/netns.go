package plugin

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// ownNetNS are the namespaces in which no plugin may work.
type ownNetNS []os.FileInfo

// findOwnNetNS returns the namespaces of this process and of process 1. One that cannot be
// read, because it is another user's, is left out.
func findOwnNetNS() ownNetNS {
	var own ownNetNS
	for _, path := range []string{"/proc/self/ns/net", "/proc/1/ns/net"} {
		if info, err := os.Stat(path); err == nil {
			own = append(own, info)
		}
	}
	return own
}

// check returns an error if path is one of them, under any name: a symbolic link or a bind
// mount has the same device and inode. A path that does not exist is accepted, as plugins do.
func (own ownNetNS) check(path string) error {
	if path != "" && !filepath.IsAbs(path) {
		return fmt.Errorf("network namespace %q: expected an absolute path", path)
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("network namespace %q is not accessible: %w; expected one that this process may open, or a path that does not exist", path, err)
	}
	for _, o := range own {
		if os.SameFile(info, o) {
			return fmt.Errorf("network namespace %q is that of this process or of process 1, in which plugins fail after they have allocated; expected another one, or a path that does not exist", path)
		}
	}
	return nil
}

// CheckNetNS returns an error if the value of --cni-netns is such a namespace
// (docs/reference/plugins.md, Network namespaces), or not an absolute path.
func CheckNetNS(netns string) error {
	if err := findOwnNetNS().check(netns); err != nil {
		return fmt.Errorf("--cni-netns: %w", err)
	}
	return nil
}
