package harness

import (
	"os"
	"os/exec"
	"testing"
)

// Files of the machine that tell a sidecar where and when it runs (proc(5),
// machine-id(5)).
const (
	BootIDFile    = "/proc/sys/kernel/random/boot_id"
	MachineIDFile = "/etc/machine-id"
)

// inPlaceOf is run by sh: it mounts $1 over $2, for itself and what it becomes.
const inPlaceOf = `mount --bind "$1" "$2" && shift 2 && exec "$@"`

// ReplaceFile lets every sidecar that is started from now on read a content in
// the place of a file of the machine, and nobody else. It needs a mount namespace;
// where none can be made the test lacks it. What was answered on another machine is
// no promise on this one.
func (n *Node) ReplaceFile(t testing.TB, path, content string) {
	t.Helper()
	if path == MachineIDFile {
		n.ForgetAnswers()
	}
	replacement := n.replacementOf(path)
	if err := os.WriteFile(replacement, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	n.Under = []string{"unshare", "--mount", "sh", "-c", inPlaceOf, "sh", replacement, path}
	try := exec.Command(n.Under[0], append(n.Under[1:], "cat", path)...)
	if out, err := try.CombinedOutput(); err != nil || string(out) != content {
		Lack(t, "%s cannot be replaced for one process here (root, unshare and a bind mount are needed): %v: %s", path, err, out)
	}
}
