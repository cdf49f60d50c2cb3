package journal

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// withoutPrivileges runs f so that file modes bind it even in root's name: on a
// thread of its own without capabilities, which ends with the goroutine.
func withoutPrivileges(t *testing.T, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		f()
		return
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		err := unix.Capset(&header, &none[0])
		if err == nil {
			f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Skipf("capabilities cannot be given up here: %v", err)
	}
}
