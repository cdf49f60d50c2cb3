package plugin

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// initNetNS is the namespace of process 1: the machine's, or the container's.
const initNetNS = "/proc/1/ns/net"

// ownNetNSByPID returns our own namespace as another process would name it.
func ownNetNSByPID() string { return fmt.Sprintf("/proc/%d/ns/net", os.Getpid()) }

// ownNetNSPaths are names of our own network namespace. Each returns a path; an empty one if the
// subtest was run as process 1 instead.
func ownNetNSPaths() map[string]func(t *testing.T) string {
	return map[string]func(t *testing.T) string{
		"self":                 func(*testing.T) string { return "/proc/self/ns/net" },
		"process ID":           func(*testing.T) string { return ownNetNSByPID() },
		"symbolic link":        func(t *testing.T) string { return symlink(t, ownNetNSByPID()) },
		"process 1":            ownInitNetNS,
		"symbolic link of 1's": symlinkToInitNetNS,
		"bind mount":           bindOwnNetNS,
	}
}

func symlink(t *testing.T, path string) string {
	t.Helper()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	return link
}

// ownInitNetNS returns the namespace of process 1 if it is ours. Otherwise it runs the subtest as
// process 1, and returns an empty path.
func ownInitNetNS(t *testing.T) string {
	t.Helper()
	ours, err := os.Stat("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	if one, err := os.Stat(initNetNS); err == nil && os.SameFile(one, ours) {
		return initNetNS
	}
	harness.RunAsInit(t)
	return ""
}

func symlinkToInitNetNS(t *testing.T) string {
	t.Helper()
	if ownInitNetNS(t) == "" {
		return ""
	}
	return symlink(t, initNetNS)
}

func bindOwnNetNS(t *testing.T) string {
	t.Helper()
	mounted := filepath.Join(t.TempDir(), "mounted")
	if err := os.WriteFile(mounted, nil, 0o600); err != nil {
		t.Fatal(err)
	}
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

func TestOwnNetNS(t *testing.T) {
	// That of process 1 is refused where we may read it, because it is known then, and where we may
	// not, because it could be ours.
	for _, path := range []string{"/proc/self/ns/net", "/proc/thread-self/ns/net", ownNetNSByPID(), symlink(t, "/proc/self/ns/net"), initNetNS, symlink(t, initNetNS)} {
		wantText(t, checkNetNS(path), path)
	}
	for _, path := range []string{DefaultNetNS, "/proc/self/ns/mnt", t.TempDir()} {
		if err := checkNetNS(path); err != nil {
			t.Errorf("%s: got %v, want it accepted", path, err)
		}
	}
}

// Trap: our own namespace leaks an address, also by a name that no /proc has.
func TestOwnNetNSBindMount(t *testing.T) {
	wantText(t, checkNetNS(bindOwnNetNS(t)), "of this process")
}

func TestCheckNetNS(t *testing.T) {
	for path, want := range map[string]string{
		"/proc/self/ns/net": "of this process", "relative": "absolute",
		"": "", DefaultNetNS: "",
	} {
		err := CheckNetNS(path)
		if want == "" && err != nil {
			t.Errorf("%q: got %v", path, err)
		}
		if want != "" {
			wantText(t, err, "--cni-netns", want)
		}
	}
}
