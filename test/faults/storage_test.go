package faults

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
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
	happen func(t *testing.T, n *harness.Node, s *harness.Sidecar) (reacquire func())
	// says is in every refusal, and why the sidecar is not ready.
	says string
	// instead returns the folder that is in the place of the original one meanwhile; nil
	// where there is none.
	instead func(n *harness.Node) string
}

// otherFolder is what the sidecar says of a folder that is not the one it has opened.
const otherFolder = "another directory or file system"

func storageFaults() map[string]storageFault {
	return map[string]storageFault{
		"no space": {
			func(t *testing.T, n *harness.Node) { mountSmall(t, n.StateDir) },
			fillUp, "no space left on device", nil,
		},
		"read-only": {
			// Not the state folder itself: the lock in it is open for writing, and
			// Linux makes nothing read-only then but by force.
			func(t *testing.T, n *harness.Node) { mountSmall(t, attachments(n)) },
			makeReadOnly, "read-only file system", nil,
		},
		"permission":                      {obeyModes, forbid, "permission denied", nil},
		"I/O error":                       {nil, failFsync, "input/output error", nil},
		"moved away":                      {nil, moveAway, "no such file or directory", nil},
		"a symbolic link in its place":    {nil, linkTo(stateDir), "symbolic link", nil},
		"a symbolic link for the records": {nil, linkTo(attachments), "symbolic link", nil},
		"a file in its place":             {nil, fileInstead, "another file", nil},
		"another folder in its place":     {nil, folderInstead(stateDir), otherFolder, stateDir},
		"another folder for the records":  {nil, folderInstead(attachments), otherFolder, attachments},
		"a disk mounted over it":          {nil, mountOver(stateDir), otherFolder, stateDir},
		"a disk mounted over the records": {nil, mountOver(attachments), otherFolder, attachments},
		"its disk unmounted":              {onAMount, unmount, otherFolder, stateDir},
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
			held := s.AllocateFor(t, "router")
			released := s.AllocateFor(t, "health")
			before := n.Leases(t)
			original, err := os.OpenRoot(n.StateDir)
			must(t, err)
			defer original.Close()
			records := contentOf(t, original.FS())

			reacquire := f.happen(t, n, s)
			wantUnready(t, s, f.says)
			wantAnswer(t, s.TryAllocate(t, harness.Request{Owner: "ingress"}), http.StatusBadGateway, f.says)
			wantAnswer(t, s.TryRelease(t, released[0]), http.StatusInternalServerError, f.says)
			wantAnswer(t, s.TryRestore(t, "10.15.0.77", "restored"), http.StatusInternalServerError, f.says)
			// What is held and needs no writing is still told.
			wantHeld(t, s, "router", held)
			if now := n.Leases(t); !slices.Equal(now, before) {
				t.Errorf("the plugin's store was %v and is %v; want it not to be touched", before, now)
			}
			if f.instead != nil {
				if found := contentOf(t, os.DirFS(f.instead(n))); len(found) > 0 {
					t.Errorf("the folder in the original's place has %q; want nothing to be made there", found)
				}
				if now := contentOf(t, original.FS()); f.instead(n) == n.StateDir && !maps.Equal(now, records) {
					t.Errorf("the original folder had %q and has %q", records, now)
				}
			}

			reacquire()
			s.WaitReady(t)
			wantHeld(t, s, "router", held)
			s.Release(t, released...)
			ingress := s.AllocateFor(t, "ingress")
			s.TryRestore(t, "10.15.0.77", "restored").WantStatus(t, http.StatusOK)
			s.WaitConsistent(t)

			// The disk knows all that, too.
			s.Kill(t)
			count.killed(1)
			s = n.Start(t)
			s.WaitConsistent(t)
			if q := s.Health(t).DelegatedIPAM.Quarantined; len(q) > 0 {
				t.Errorf("health reports the quarantined records %+v; want none", q)
			}
			wantHeld(t, s, "router", held)
			wantHeld(t, s, "ingress", ingress)
			if a := s.Attachment(t, "health"); a != nil {
				t.Errorf("what was released is there again: %+v", a)
			}
		})
	}
}

// The folder that was opened does not come back: nothing is changed until a restart
// takes what is there.
func TestARestartTakesTheFolderInTheOriginalsPlace(t *testing.T) {
	t.Parallel()
	count := newTally(t, storage)
	for name, f := range map[string]storageFault{
		"removed and made again": {happen: removeAndMake},
		"its disk unmounted":     {prepare: onAMount, happen: unmount},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			count.watch(t)
			n := nodeWith(t)
			if f.prepare != nil {
				f.prepare(t, n)
			}
			s := n.Start(t)
			held := s.AllocateFor(t, "router")

			f.happen(t, n, s)
			wantUnready(t, s, otherFolder)
			wantAnswer(t, s.TryAllocate(t, harness.Request{Owner: "ingress"}), http.StatusBadGateway, otherFolder)
			wantAnswer(t, s.TryRelease(t, held[0]), http.StatusInternalServerError, otherFolder)
			if found := contentOf(t, os.DirFS(n.StateDir)); len(found) > 0 {
				t.Errorf("the folder in the original's place has %q; want nothing to be made there", found)
			}
			s.Kill(t)
			count.killed(1)

			n.ResetHistory() // the journal is lost
			s = n.Start(t)
			if list := s.List(t); len(list) > 0 {
				t.Errorf("it lists %+v; want nothing, as the folder has nothing", list)
			}
			s.AllocateFor(t, "router")
			s.WaitConsistent(t)
		})
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
	if got := s.AllocateFor(t, owner); !slices.Equal(got, want) {
		t.Errorf("%s has %q; want %q as before", owner, got, want)
	}
}

func stateDir(n *harness.Node) string { return n.StateDir }

func attachments(n *harness.Node) string { return filepath.Join(n.StateDir, "attachments") }

// mountSmall mounts a file system of 256 KiB on a folder.
func mountSmall(t *testing.T, dir string) {
	t.Helper()
	must(t, os.MkdirAll(dir, 0o700))
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=256k,mode=0700"); err != nil {
		cannot(t, "a file system cannot be mounted here (root is needed): %v", err)
	}
	t.Cleanup(func() { unmounted(t, dir) })
}

func fillUp(t *testing.T, n *harness.Node, _ *harness.Sidecar) func() {
	ballast := filepath.Join(n.StateDir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 512<<10), 0o600); err == nil {
		t.Fatal("the file system is not small")
	}
	return func() { must(t, os.Remove(ballast)) }
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
	n.Wrapper = []string{setpriv, "--inh-caps=-all", "--bounding-set=-all"}
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

// removeAndMake loses the folder, and makes an empty one.
func removeAndMake(t *testing.T, n *harness.Node, _ *harness.Sidecar) func() {
	must(t, os.RemoveAll(n.StateDir))
	must(t, os.Mkdir(n.StateDir, 0o700))
	return func() {}
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

// fileInstead puts a file in the folder's place.
func fileInstead(t *testing.T, n *harness.Node, s *harness.Sidecar) func() {
	back := moveAway(t, n, s)
	must(t, os.WriteFile(n.StateDir, nil, 0o600))
	return func() {
		must(t, os.Remove(n.StateDir))
		back()
	}
}

// folderInstead moves a folder away and puts an empty one in its place.
func folderInstead(folder func(*harness.Node) string) func(*testing.T, *harness.Node, *harness.Sidecar) func() {
	return func(t *testing.T, n *harness.Node, _ *harness.Sidecar) func() {
		path, elsewhere := folder(n), filepath.Join(n.Dir, "elsewhere")
		must(t, os.Rename(path, elsewhere))
		must(t, os.Mkdir(path, 0o700))
		return func() {
			must(t, os.RemoveAll(path))
			must(t, os.Rename(elsewhere, path))
		}
	}
}

// mountOver mounts another file system over a folder.
func mountOver(folder func(*harness.Node) string) func(*testing.T, *harness.Node, *harness.Sidecar) func() {
	return func(t *testing.T, n *harness.Node, _ *harness.Sidecar) func() {
		mountSmall(t, folder(n))
		return func() { must(t, unix.Unmount(folder(n), 0)) }
	}
}

// diskOf is where the file system of onAMount is mounted as well, so that it outlives
// its unmounting from the state folder, as a disk does.
func diskOf(n *harness.Node) string { return filepath.Join(n.Dir, "disk") }

// onAMount makes the state folder a mount of another file system.
func onAMount(t *testing.T, n *harness.Node) {
	t.Helper()
	mountSmall(t, diskOf(n))
	must(t, os.MkdirAll(n.StateDir, 0o700))
	mountDisk(t, n)
	t.Cleanup(func() { unmounted(t, n.StateDir) })
}

func mountDisk(t *testing.T, n *harness.Node) {
	t.Helper()
	must(t, unix.Mount(diskOf(n), n.StateDir, "", unix.MS_BIND, ""))
}

// unmount is "umount -l", which does not care that the folder is in use.
func unmount(t *testing.T, n *harness.Node, _ *harness.Sidecar) func() {
	must(t, unix.Unmount(n.StateDir, unix.MNT_DETACH))
	return func() { mountDisk(t, n) }
}

// unmounted unmounts a folder unless it is not a mount any more.
func unmounted(t *testing.T, dir string) {
	t.Helper()
	if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
		t.Error(err)
	}
}

// contentOf returns every file and folder in a folder, by path, with the content of files.
func contentOf(t *testing.T, in fs.FS) map[string]string {
	t.Helper()
	found := map[string]string{}
	must(t, fs.WalkDir(in, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == "." {
			return err
		}
		found[path] = d.Type().String()
		if d.Type().IsRegular() {
			var data []byte
			data, err = fs.ReadFile(in, path)
			found[path] = string(data)
		}
		return err
	}))
	return found
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
