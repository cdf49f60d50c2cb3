package plugin

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// checkNetNS returns an error if path is the namespace of this process or of process 1, in which no
// plugin may work, under any name: a symbolic link or a bind mount has the same device and inode. A
// path that does not exist is accepted, as plugins do. A namespace of process 1 that cannot be read is
// another user's.
func checkNetNS(path string) error {
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
	for _, own := range []string{"/proc/self/ns/net", "/proc/1/ns/net"} {
		if ownInfo, err := os.Stat(own); err == nil && os.SameFile(info, ownInfo) {
			return fmt.Errorf("network namespace %q is that of this process or of process 1, in which plugins fail after they have allocated; expected another one, or a path that does not exist", path)
		}
	}
	return nil
}

// CheckNetNS returns an error if the value of --cni-netns is such a namespace
// (docs/reference/plugins.md, Network namespaces), or not an absolute path.
func CheckNetNS(netns string) error {
	if err := checkNetNS(netns); err != nil {
		return fmt.Errorf("--cni-netns: %w", err)
	}
	return nil
}
