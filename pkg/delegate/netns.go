package delegate

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

// ephemeralPath is where a plugin finds the namespace of an ephemeral call:
// the first descriptor that it inherits.
const ephemeralPath = "/proc/self/fd/3"

// ownNetNS are the namespaces that no plugin may be told to work in.
type ownNetNS []os.FileInfo

// findOwnNetNS returns the namespace of this process and that of process 1.
// One that cannot be looked at (another user's) is not ours.
func findOwnNetNS() ownNetNS {
	var own ownNetNS
	for _, path := range []string{"/proc/self/ns/net", "/proc/1/ns/net"} {
		if info, err := os.Stat(path); err == nil {
			own = append(own, info)
		}
	}
	return own
}

// refuse returns an error if path is one of them, by whatever name: a symbolic
// link or a bind mount has the same device and inode. A path that does not
// exist is fine; plugins accept it.
func (own ownNetNS) refuse(path string) error {
	if path != "" && !filepath.IsAbs(path) {
		return fmt.Errorf("network namespace %q: expected an absolute path, or %q", path, EphemeralNetNS)
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("network namespace %q cannot be looked at: %w; expected one that this process may open, or a path that does not exist", path, err)
	}
	for _, o := range own {
		if os.SameFile(info, o) {
			return fmt.Errorf("network namespace %q is our own, and plugins fail there after they have allocated; expected another one, a path that does not exist, or %q", path, EphemeralNetNS)
		}
	}
	return nil
}

// netnsProbe finds out whether network namespaces can be made, and remembers
// that they can. It is safe for concurrent use.
type netnsProbe struct{ passed atomic.Bool }

// try returns why none can be made. A failure is not remembered: a limit of the
// kernel's (user.max_net_namespaces) may be reached only for now.
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

// newNetNS makes a network namespace that lives as long as the file and whoever
// inherits it. The error says which right is missing.
func newNetNS() (*os.File, error) {
	type made struct {
		file *os.File
		err  error
	}
	done := make(chan made, 1)
	go func() {
		f, err := unshareNetNS()
		done <- made{f, err}
	}()
	m := <-done
	return m.file, m.err
}

// unshareNetNS moves its thread into a new namespace. The thread is never
// unlocked: it ends with its goroutine, so that no other one runs there.
func unshareNetNS() (*os.File, error) {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		// The main thread is the process to everybody who looks at it from
		// outside, and it never ends. While it is held here, another is used.
		defer runtime.UnlockOSThread()
		return newNetNS()
	}
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("unshare: %w (it takes CAP_SYS_ADMIN)", err)
	}
	return os.Open("/proc/thread-self/ns/net")
}
