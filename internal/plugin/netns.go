package plugin

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// ephemeralPath is the CNI_NETNS of an ephemeral call: the first descriptor that the plugin
// inherits.
const ephemeralPath = "/proc/self/fd/3"

// ownNetNS are the namespaces in which no plugin may work.
type ownNetNS []os.FileInfo

// findOwnNetNS returns the namespace of this process and that of process 1. One that cannot be
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
		return fmt.Errorf("network namespace %q: expected an absolute path, or %q", path, EphemeralNetNS)
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
			return fmt.Errorf("network namespace %q is that of this process or of process 1, in which plugins fail after they have allocated; expected another one, a path that does not exist, or %q", path, EphemeralNetNS)
		}
	}
	return nil
}

// checkOption checks the value of --cni-netns.
func (own ownNetNS) checkOption(netns string) error {
	if netns == EphemeralNetNS {
		return nil
	}
	if err := own.check(netns); err != nil {
		return fmt.Errorf("--cni-netns: %w", err)
	}
	return nil
}

// CheckNetNS returns an error if the value of --cni-netns is such a namespace
// (docs/reference/plugins.md, Network namespaces), or not an absolute path. It accepts EphemeralNetNS.
func CheckNetNS(netns string) error { return findOwnNetNS().checkOption(netns) }

// netnsProbe finds out whether network namespaces can be created, and remembers a success. It is
// safe for concurrent use.
type netnsProbe struct{ passed atomic.Bool }

// try returns why none can be created. A failure is not remembered: a limit of the kernel
// (user.max_net_namespaces) may be reached only for now.
func (p *netnsProbe) try() error {
	if p.passed.Load() {
		return nil
	}
	ns, err := newNetNS()
	if err != nil {
		return err
	}
	p.passed.Store(true)
	return ns.Close()
}

// newNetNS creates a network namespace that lasts as long as the file, and the processes that
// inherit it. The error names the capability that is missing.
func newNetNS() (*os.File, error) {
	type created struct {
		file *os.File
		err  error
	}
	done := make(chan created, 1)
	go func() {
		file, err := unshareNetNS()
		done <- created{file, err}
	}()
	c := <-done
	return c.file, c.err
}

// unshareNetNS moves its thread into a new namespace. The thread is never unlocked: it ends with
// its goroutine, so that no other goroutine runs in that namespace.
func unshareNetNS() (*os.File, error) {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		// The main thread stands for the process in /proc/<pid>, and never ends. While it is
		// locked here, another thread is used.
		defer runtime.UnlockOSThread()
		return newNetNS()
	}
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("unshare: %w (needs CAP_SYS_ADMIN)", err)
	}
	return os.Open("/proc/thread-self/ns/net")
}
