package unixsock

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// checkFolder refuses a folder of another user, who could put a socket of his own
// in the place of ours and hand out addresses to our clients. Root could do so anywhere.
func checkFolder(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Uid != 0 && int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("its folder belongs to user %d; expected root or our own user %d, so change its owner or choose another folder (--socket-path)",
			stat.Uid, os.Geteuid())
	}
	return nil
}

// Exposed tells why others could put a socket of their own in the place of the one
// at a path: everybody may write to its folder; nil if not. It is no reason not to
// serve, because the emptyDir of a Kubernetes pod is such a folder, and only the
// pod's containers see it.
func Exposed(path string) error {
	dir := filepath.Dir(path)
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("socket %s: %w", path, err)
	}
	if info.Mode().Perm()&0o002 != 0 && info.Mode()&fs.ModeSticky == 0 {
		return fmt.Errorf("everybody may write to %s (mode %s), and so put another socket in the place of %s; expected a folder that only its owner may write to",
			dir, info.Mode(), filepath.Base(path))
	}
	return nil
}
