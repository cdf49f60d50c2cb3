package harness

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// podSandbox is the container ID of a pod that LeaseToPod makes.
const podSandbox = "a-pods-sandbox"

// BackUpStore copies what host-local holds now, and returns the function that
// puts it back in the place of what it holds then.
func (n *Node) BackUpStore(t testing.TB) (restore func()) {
	t.Helper()
	backup := filepath.Join(t.TempDir(), "store")
	err := os.CopyFS(backup, os.DirFS(n.StoreDir))
	if errors.Is(err, fs.ErrNotExist) {
		err = os.MkdirAll(backup, 0o755) // it holds nothing yet
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		n.WipeStore(t)
		if err := os.CopyFS(n.StoreDir, os.DirFS(backup)); err != nil {
			t.Fatal(err)
		}
	}
}

// LeaseToPod makes an address of host-local's that of a pod, as an ADD by
// cilium-cni would. From now on Store leaves pods out: they are in no list.
func (n *Node) LeaseToPod(t testing.TB, network, ip string) {
	t.Helper()
	n.ForgetAnswers()
	dir := filepath.Join(n.StoreDir, network)
	err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, ip), []byte(podSandbox+"\r\neth0"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	all := n.Store
	n.Store = func() ([]oracle.Lease, error) {
		leases, err := all()
		return slices.DeleteFunc(leases, func(l oracle.Lease) bool { return l.ContainerID == podSandbox }), err
	}
}
