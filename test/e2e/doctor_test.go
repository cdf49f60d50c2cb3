package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// storeFile returns the path of the file of an address of the network "pods".
func storeFile(n *harness.Node, ip string) string { return filepath.Join(n.StoreDir, "pods", ip) }

// putLease writes the file of an address as host-local does.
func putLease(t *testing.T, n *harness.Node, ip, content string) {
	t.Helper()
	check.Must(t, os.WriteFile(storeFile(n, ip), []byte(content), 0o600))
}
