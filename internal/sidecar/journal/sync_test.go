package journal

import (
	"errors"
	"os"
	"syscall"
	"testing"
)

// An fsync leaves no trace that a test could see without a power loss, but procfs refuses it.
func TestSyncDir(t *testing.T) {
	root, err := os.OpenRoot("/proc/self")
	must(t, err)
	defer root.Close()
	for name, err := range map[string]error{"syncDir": syncDir(&directory{Root: root}), "syncPath": syncPath("/proc/self")} {
		if !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s of a directory that cannot be synced: %v; want EINVAL", name, err)
		}
	}
}
