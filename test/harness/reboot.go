package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// Reboot gives every sidecar that is started from now on a boot ID that none had
// before. The caller has killed what a reboot ends.
func (n *Node) Reboot(t testing.TB) {
	t.Helper()
	n.boots++
	id := fmt.Sprintf("b00710ad-0000-4000-8000-%012d\n", n.boots)
	if n.boots == 1 {
		n.ReplaceFile(t, BootIDFile, id)
		return
	}
	if err := os.WriteFile(n.replacementOf(BootIDFile), []byte(id), 0o644); err != nil {
		t.Fatal(err)
	}
}

// replacementOf is the file that ReplaceFile puts in the place of another one.
func (n *Node) replacementOf(path string) string {
	return filepath.Join(n.Dir, "in-place-of-"+filepath.Base(path))
}
