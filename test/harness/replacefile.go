package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Files that identify the machine and its boot (machine-id(5), proc(5)).
const (
	BootIDFile    = "/proc/sys/kernel/random/boot_id"
	MachineIDFile = "/etc/machine-id"
)

// bindMountScript mounts $1 over $2 and executes the rest of its arguments.
const bindMountScript = `mount --bind "$1" "$2" && shift 2 && exec "$@"`

// bindMount returns a wrapper for commands that see one file or folder in the place of
// another; no other process does.
func bindMount(from, over string) []string {
	return []string{"unshare", "--mount", "sh", "-c", bindMountScript, "sh", from, over}
}

// ReplaceFile makes every sidecar that is started from now on read other content from a
// file of the machine. Without the right to create a mount namespace the test is skipped.
// With another machine ID the history is reset: the responses were those of another machine.
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
