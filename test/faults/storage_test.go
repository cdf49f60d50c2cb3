package faults

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// storageFault is something that happens to the state folder of a sidecar that
// runs.
type storageFault struct {
	// prepare is done before the sidecar starts; nil for nothing.
	prepare func(t *testing.T, n *harness.Node)
	// happen makes it so and returns what takes it away again.
	happen func(t *testing.T, n *harness.Node, s *harness.Sidecar) (heal func())
	// says is in every refusal, and why the sidecar is not ready.
	says string
}

func storageFaults() map[string]storageFault {
	return map[string]storageFault{
		"no space": {
			func(t *testing.T, n *harness.Node) { mountSmall(t, n.StateDir) },
			fillUpToTheLastSpare, "no space left on device",
		},
		"read-only": {
			// Not the state folder itself: the lock in it is open for writing, and
			// Linux makes nothing read-only then but by force.
			func(t *testing.T, n *harness.Node) { mountSmall(t, attachments(n)) },
			makeReadOnly, "read-only file system",
		},
		"permission":                      {obeyModes, forbid, "permission denied"},
		"I/O error":                       {nil, failFsync, "input/output error"},
		"moved away":                      {nil, moveAway, "no such file or directory"},
		"vanished":                        {nil, vanish, "no such file or directory"},
		"a symbolic link in its place":    {nil, linkTo(func(n *harness.Node) string { return n.StateDir }), "symbolic link"},
		"a symbolic link for the records": {nil, linkTo(attachments), "symbolic link"},
		"a file in its place":             {nil, fileInstead, "no folder"},
	}
}

func TestAStorageFaultIsNeverAnsweredWronglyAndHeals(t *testing.T) {
	t.Parallel()
	count := newTally(t, storage)
	for name, f := range storageFaults() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			count.watch(t)
			n := nodeWith(t)
			if f.prepare != nil {
				f.prepare(t, n)
			}
			s := n.Start(t)
			held := s.Allocate(t, harness.Request{Owner: "router"}).Addresses()
			released := s.Allocate(t, harness.Request{Owner: "health"}).Addresses()
			before := n.Leases(t)

			heal := f.happen(t, n, s)
			wantUnready(t, s, f.says)
			wantAnswer(t, s.TryAllocate(t, harness.Request{Owner: "ingress"}), http.StatusBadGateway, f.says)
			wantAnswer(t, s.TryRelease(t, released[0]), http.StatusInternalServerError, f.says)
			wantAnswer(t, s.TryRestore(t, "10.15.0.77", "restored"), http.StatusInternalServerError, f.says)
			// What is held and needs no writing is still told.
			wantHeld(t, s, "router", held)
			if now := n.Leases(t); !slices.Equal(now, before) {
				t.Errorf("the plugin's store was %v and is %v; want it not to be touched", before, now)
			}

			heal()
			s.WaitReady(t)
			wantHeld(t, s, "router", held)
			s.Release(t, released...)
			ingress := s.Allocate(t, harness.Request{Owner: "ingress"}).Addresses()
			s.TryRestore(t, "10.15.0.77", "restored").Want(t, http.StatusOK)
			s.Agree(t)

			// The disk knows all that, too.
			s.Kill(t)
			count.killed(1)
			s = n.Start(t)
			s.Agree(t)
			wantHeld(t, s, "router", held)
			wantHeld(t, s, "ingress", ingress)
			if a := s.Of(t, "health"); a != nil {
				t.Errorf("what was released is there again: %+v", a)
			}
		})
	}
}

// A spare is written over, which takes no room. Nothing new is begun with the last one.
func TestOnAFullDiskWhatIsHeldIsReleasedAndNothingNewIsBegun(t *testing.T) {
	t.Parallel()
	newTally(t, storage).watch(t)
	n := nodeWith(t)
	mountSmall(t, n.StateDir)
	s := n.Start(t)
	held := s.Allocate(t, harness.Request{Owner: "router"}).Addresses()
	released := s.Allocate(t, harness.Request{Owner: "health"}).Addresses()
	if len(spares(t, n)) == 0 {
		t.Fatal("there is no spare to write over")
	}
	before := n.Leases(t)

	const says = "no space left on device"
	heal := fillUp(t, n, s)
	wantUnready(t, s, says)
	wantAnswer(t, s.TryAllocate(t, harness.Request{Owner: "ingress"}), http.StatusBadGateway, says)
	wantAnswer(t, s.TryRestore(t, "10.15.0.77", "restored"), http.StatusInternalServerError, says)
	if now := n.Leases(t); !slices.Equal(now, before) {
		t.Errorf("the plugin's store was %v and is %v; want it not to be touched", before, now)
	}
	s.Release(t, released...)
	wantHeld(t, s, "router", held)
	s.Agree(t)
	s.Kill(t)

	heal()
	s = n.Start(t)
	s.Agree(t)
	wantHeld(t, s, "router", held)
	if a := s.Of(t, "health"); a != nil {
		t.Errorf("what was released is there again: %+v", a)
	}
}

func wantUnready(t *testing.T, s *harness.Sidecar, says string) {
	t.Helper()
	harness.Eventually(t, "the sidecar not to be ready", func() error {
		err := s.Ready()
		if err == nil || !strings.Contains(err.Error(), says) {
			return fmt.Errorf("health says %v; want %q", err, says)
		}
		return nil
	})
}

func wantHeld(t *testing.T, s *harness.Sidecar, owner string, want []string) {
	t.Helper()
	if got := s.Allocate(t, harness.Request{Owner: owner}).Addresses(); !slices.Equal(got, want) {
		t.Errorf("%s has %q; want %q as before", owner, got, want)
	}
}

func attachments(n *harness.Node) string { return filepath.Join(n.StateDir, "attachments") }

// mountSmall mounts a file system of 256 KiB on a folder.
func mountSmall(t *testing.T, dir string) {
	t.Helper()
	must(t, os.MkdirAll(dir, 0o700))
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=256k,mode=0700"); err != nil {
		cannot(t, "a file system cannot be mounted here (root is needed): %v", err)
	}
	t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
}

func fillUp(t *testing.T, n *harness.Node, _ *harness.Sidecar) func() {
	ballast := filepath.Join(n.StateDir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 512<<10), 0o600); err == nil {
		t.Fatal("the file system is not small")
	}
	return func() { must(t, os.Remove(ballast)) }
}

// fillUpToTheLastSpare takes away first what could be written over.
func fillUpToTheLastSpare(t *testing.T, n *harness.Node, s *harness.Sidecar) func() {
	for _, spare := range spares(t, n) {
		must(t, os.Remove(spare))
	}
	return fillUp(t, n, s)
}

func spares(t *testing.T, n *harness.Node) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(attachments(n), ".spare.json*"))
	must(t, err)
	return found
}

func makeReadOnly(t *testing.T, n *harness.Node, _ *harness.Sidecar) func() {
	must(t, unix.Mount("", attachments(n), "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	return func() { must(t, unix.Mount("", attachments(n), "", unix.MS_REMOUNT, "")) }
}

// obeyModes takes from the sidecar of a root what lets root pass every mode.
func obeyModes(t *testing.T, n *harness.Node) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		cannot(t, "setpriv (util-linux) is needed, because modes do not bind root: %v", err)
	}
	n.Under = []string{setpriv, "--inh-caps=-all", "--bounding-set=-all"}
}

func forbid(t *testing.T, n *harness.Node, _ *harness.Sidecar) func() {
	must(t, os.Chmod(attachments(n), 0o500))
	return func() { must(t, os.Chmod(attachments(n), 0o700)) }
}

// failFsync lets each fsync and fdatasync of the sidecar fail by strace's injection.
func failFsync(t *testing.T, _ *harness.Node, s *harness.Sidecar) func() {
	cmd := exec.Command(wantStrace(t), "-f", "-o", os.DevNull, "-e", "trace=fsync,fdatasync", "-e", "inject=fsync,fdatasync:error=EIO", "-p", fmt.Sprint(s.PID()))
	must(t, cmd.Start())
	stopped := false
	stop := func() {
		if stopped {
			return
		}
		stopped = true
		must(t, cmd.Process.Signal(syscall.SIGINT)) // it lets go of the sidecar
		_ = cmd.Wait()                              // it ends by the signal that it was sent
	}
	t.Cleanup(stop)
	return stop
}

// moveAway takes the folder away and brings it back as it was.
func moveAway(t *testing.T, n *harness.Node, _ *harness.Sidecar) func() {
	away := n.StateDir + ".away"
	must(t, os.Rename(n.StateDir, away))
	return func() { must(t, os.Rename(away, n.StateDir)) }
}

// vanish removes the folder; it comes back empty.
func vanish(t *testing.T, n *harness.Node, _ *harness.Sidecar) func() {
	must(t, os.RemoveAll(n.StateDir))
	return func() { must(t, os.Mkdir(n.StateDir, 0o700)) }
}

// linkTo puts the folder elsewhere and a link to it in its place.
func linkTo(folder func(*harness.Node) string) func(*testing.T, *harness.Node, *harness.Sidecar) func() {
	return func(t *testing.T, n *harness.Node, _ *harness.Sidecar) func() {
		path, elsewhere := folder(n), filepath.Join(n.Dir, "elsewhere")
		must(t, os.Rename(path, elsewhere))
		must(t, os.Symlink(elsewhere, path))
		return func() {
			must(t, os.Remove(path))
			must(t, os.Rename(elsewhere, path))
		}
	}
}

// fileInstead puts a file in the folder's place; an empty folder comes back.
func fileInstead(t *testing.T, n *harness.Node, _ *harness.Sidecar) func() {
	must(t, os.RemoveAll(n.StateDir))
	must(t, os.WriteFile(n.StateDir, nil, 0o600))
	return func() {
		must(t, os.Remove(n.StateDir))
		must(t, os.Mkdir(n.StateDir, 0o700))
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
