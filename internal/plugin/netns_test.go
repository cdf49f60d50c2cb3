package plugin

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func symlink(t *testing.T, path string) string {
	t.Helper()
	link := filepath.Join(t.TempDir(), "link")
	check.Must(t, os.Symlink(path, link))
	return link
}

func bindOwnNetNS(t *testing.T) string {
	t.Helper()
	mounted := filepath.Join(t.TempDir(), "mounted")
	check.Must(t, os.WriteFile(mounted, nil, 0o600))
	if err := unix.Mount("/proc/self/ns/net", mounted, "", unix.MS_BIND, ""); err != nil {
		harness.LackRight(t, "a bind mount needs CAP_SYS_ADMIN", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(mounted, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return mounted
}

//evidence:operate/security it works in the network namespace of the daemon or of process 1
func TestCheckNetNS(t *testing.T) {
	// That of process 1 is refused where we may read it, because it is known then, and where we may
	// not, because it could be ours.
	const initNetNS = "/proc/1/ns/net"
	for _, path := range []string{
		"/proc/self/ns/net", "/proc/thread-self/ns/net", fmt.Sprintf("/proc/%d/ns/net", os.Getpid()), symlink(t, "/proc/self/ns/net"),
		initNetNS, symlink(t, initNetNS),
	} {
		wantText(t, checkNetNS(path), path)
	}
	wantText(t, checkNetNS("relative"), "absolute")
	for _, path := range []string{"", DefaultNetNS, "/proc/self/ns/mnt", t.TempDir()} {
		if err := checkNetNS(path); err != nil {
			t.Errorf("%s: got %v, want it accepted", path, err)
		}
	}
}

// Trap: our own namespace leaks an address, also by a name that no /proc has.
//
//evidence:operate/security it works in the network namespace of the daemon or of process 1
func TestOwnNetNSBindMount(t *testing.T) {
	wantText(t, checkNetNS(bindOwnNetNS(t)), "of this process")
}
