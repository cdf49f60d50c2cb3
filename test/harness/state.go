package harness

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// BackUpStore copies host-local's store and returns a function that replaces the store with the copy.
func (n *Node) BackUpStore(t testing.TB) (restore func()) {
	t.Helper()
	backup := filepath.Join(t.TempDir(), "store")
	err := os.CopyFS(backup, os.DirFS(n.StoreDir))
	if errors.Is(err, fs.ErrNotExist) {
		err = os.MkdirAll(backup, 0o755) // host-local has no leases yet
	}
	check.Must(t, err)
	return func() {
		t.Helper()
		n.WipeStore(t)
		check.Must(t, os.CopyFS(n.StoreDir, os.DirFS(backup)))
	}
}

// LeaseToPod writes a lease of a pod into host-local's store, as an ADD by cilium-cni would.
// From now on Store omits the leases of pods, which the daemon does not list.
func (n *Node) LeaseToPod(t testing.TB, network, ip string) {
	t.Helper()
	n.ResetHistory()
	dir := filepath.Join(n.StoreDir, network)
	check.Must(t, errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, ip), []byte("pod-sandbox\r\neth0"), 0o600)))
	n.omitPods()
}

// Files that identify the machine and its boot (machine-id(5), proc(5)).
const (
	BootIDFile    = "/proc/sys/kernel/random/boot_id"
	MachineIDFile = "/etc/machine-id"
)

// bindMount returns a wrapper for commands that see one file or directory in the place of
// another; no other process does.
func bindMount(from, over string) []string {
	return []string{"unshare", "--mount", "sh", "-c", `mount --bind "$1" "$2" && shift 2 && exec "$@"`, "sh", from, over}
}

// ReplaceFile makes every daemon that is started from now on read other content from a
// file of the machine. Without the right to create a mount namespace the test is skipped.
func (n *Node) ReplaceFile(t testing.TB, path, content string) {
	t.Helper()
	replacement := n.replacementOf(path)
	check.Must(t, os.WriteFile(replacement, []byte(content), 0o644))
	n.Wrapper = append(n.Wrapper, bindMount(replacement, path)...)
	try := exec.Command(n.Wrapper[0], append(n.Wrapper[1:], "cat", path)...)
	if out, err := try.CombinedOutput(); err != nil || string(out) != content {
		Skipf(t, "%s cannot be replaced for one process (root, unshare and a bind mount are needed): %v: %s", path, err, out)
	}
}

// replacementOf returns the file that ReplaceFile mounts over another one.
func (n *Node) replacementOf(path string) string {
	return filepath.Join(n.Dir, "in-place-of-"+filepath.Base(path))
}

// Reboot gives every daemon that is started from now on a new boot ID. The caller has killed
// the processes that a reboot ends.
func (n *Node) Reboot(t testing.TB) {
	t.Helper()
	n.boots++
	id := fmt.Sprintf("b00710ad-0000-4000-8000-%012d\n", n.boots)
	if n.boots == 1 {
		n.ReplaceFile(t, BootIDFile, id)
		return
	}
	check.Must(t, os.WriteFile(n.replacementOf(BootIDFile), []byte(id), 0o644))
}

// Snapshot maps the paths of files and directories to their mode and a hash of their content.
type Snapshot map[string]string

// Snapshot reads the plugin's store and the journal.
func (n *Node) Snapshot(t testing.TB) Snapshot {
	t.Helper()
	s := Snapshot{}
	for _, root := range []string{n.StoreDir, n.StateDir} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			s[path], err = describe(path, d)
			return err
		})
		check.Must(t, err)
	}
	return s
}

// WantSame fails the test for each path that differs.
func (s Snapshot) WantSame(t testing.TB, now Snapshot) {
	t.Helper()
	all := maps.Clone(s)
	maps.Copy(all, now)
	for _, path := range slices.Sorted(maps.Keys(all)) {
		if s[path] != now[path] {
			t.Errorf("%s changed from %q to %q", path, s[path], now[path])
		}
	}
}

func describe(path string, d fs.DirEntry) (string, error) {
	info, err := d.Info()
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return info.Mode().String(), nil
	}
	data, err := os.ReadFile(path)
	return fmt.Sprintf("%s %d bytes %x", info.Mode(), len(data), sha256.Sum256(data)), err
}
