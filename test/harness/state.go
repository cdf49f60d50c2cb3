package harness

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// podContainerID is the container ID in the leases of LeaseToPod.
const podContainerID = "pod-sandbox"

// BackUpStore copies host-local's store and returns a function that replaces the store with
// the copy.
func (n *Node) BackUpStore(t testing.TB) (restore func()) {
	t.Helper()
	backup := filepath.Join(t.TempDir(), "store")
	err := os.CopyFS(backup, os.DirFS(n.StoreDir))
	if errors.Is(err, fs.ErrNotExist) {
		err = os.MkdirAll(backup, 0o755) // host-local has no leases yet
	}
	Must(t, err)
	return func() {
		t.Helper()
		n.WipeStore(t)
		Must(t, os.CopyFS(n.StoreDir, os.DirFS(backup)))
	}
}

// LeaseToPod writes a lease of a pod into host-local's store, as an ADD by cilium-cni would.
// From now on Store omits the leases of pods, which the sidecar does not list.
func (n *Node) LeaseToPod(t testing.TB, network, ip string) {
	t.Helper()
	n.ResetHistory()
	dir := filepath.Join(n.StoreDir, network)
	Must(t, errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, ip), []byte(podContainerID+"\r\neth0"), 0o600)))
	n.omitPods()
}

// Files that identify the machine and its boot (machine-id(5), proc(5)).
const (
	BootIDFile    = "/proc/sys/kernel/random/boot_id"
	MachineIDFile = "/etc/machine-id"
)

// bindMountScript mounts $1 over $2 and executes the rest of its arguments.
const bindMountScript = `mount --bind "$1" "$2" && shift 2 && exec "$@"`

// bindMount returns a wrapper for commands that see one file or directory in the place of
// another; no other process does.
func bindMount(from, over string) []string {
	return []string{"unshare", "--mount", "sh", "-c", bindMountScript, "sh", from, over}
}

// ReplaceFile makes every sidecar that is started from now on read other content from a
// file of the machine. Without the right to create a mount namespace the test is skipped.
// With another machine ID the history is reset: the responses came from another machine.
func (n *Node) ReplaceFile(t testing.TB, path, content string) {
	t.Helper()
	if path == MachineIDFile {
		n.ResetHistory()
	}
	replacement := n.replacementOf(path)
	Must(t, os.WriteFile(replacement, []byte(content), 0o644))
	n.Wrapper = bindMount(replacement, path)
	try := exec.Command(n.Wrapper[0], append(n.Wrapper[1:], "cat", path)...)
	if out, err := try.CombinedOutput(); err != nil || string(out) != content {
		Skipf(t, "%s cannot be replaced for one process (root, unshare and a bind mount are needed): %v: %s", path, err, out)
	}
}

// replacementOf returns the file that ReplaceFile mounts over another one.
func (n *Node) replacementOf(path string) string {
	return filepath.Join(n.Dir, "in-place-of-"+filepath.Base(path))
}

// Reboot gives every sidecar that is started from now on a new boot ID. The caller has killed
// the processes that a reboot ends.
func (n *Node) Reboot(t testing.TB) {
	t.Helper()
	n.boots++
	id := fmt.Sprintf("b00710ad-0000-4000-8000-%012d\n", n.boots)
	if n.boots == 1 {
		n.ReplaceFile(t, BootIDFile, id)
		return
	}
	Must(t, os.WriteFile(n.replacementOf(BootIDFile), []byte(id), 0o644))
}

// EditRecords edits every record of a stopped sidecar, such as its deadlines, and updates the
// checksums (docs/design/state-directory.md, Records).
func (n *Node) EditRecords(t testing.TB, edit func(record map[string]any)) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(n.StateDir, "attachments", "cilium-agent-*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("records in %s: %q, %v; want one at least", n.StateDir, files, err)
	}
	for _, file := range files {
		if err := editRecord(file, edit); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
}

func editRecord(file string, edit func(map[string]any)) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var envelope struct {
		Version json.Number     `json:"version"`
		Record  json.RawMessage `json:"record"`
	}
	if err := json.Unmarshal(data, &envelope); err != nil {
		return err
	}
	var record map[string]any
	numbers := json.NewDecoder(bytes.NewReader(envelope.Record))
	numbers.UseNumber()
	if err := numbers.Decode(&record); err != nil {
		return err
	}
	edit(record)
	raw, err := json.Marshal(record)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("{\"version\":%s,\"sha256\":\"%x\",\"record\":%s}\n", envelope.Version, sha256.Sum256(raw), raw)
	return os.WriteFile(file, []byte(text), 0o600)
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
		Must(t, err)
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
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s %d bytes %x", info.Mode(), len(data), sha256.Sum256(data)), nil
}
