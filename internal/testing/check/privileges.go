package check

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// WithoutPrivileges runs f so that file modes apply, even to root: on a separate thread without capabilities.
func WithoutPrivileges(t testing.TB, f func()) {
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
		t.Skipf("capabilities cannot be dropped here: %v", err)
	}
}
