package harness

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
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
