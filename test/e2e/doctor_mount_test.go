package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// Each fault is a mount in a private mount namespace.
func TestDoctorMounts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mount string // a shell script, with the state directory in $STATE and the plugin's in $STORE
		fault
	}{
		"state directory almost full": {
			`mount -t tmpfs -o size=64k none $STATE`,
			fault{want: []string{"error state-dir", "error disk-space"}, contains: []string{"64 KiB", "free space"}},
		},
		"plugin directory almost without inodes": {
			`mount -t tmpfs -o size=64m,nr_inodes=50 none $STORE`,
			fault{want: []string{"error disk-space"}, contains: []string{"inodes are free", "free space"}},
		},
		"plugin directory with little space": {
			`mount -t tmpfs -o size=4m none $STORE`,
			fault{want: []string{"warning disk-space"}, contains: []string{"4096 KiB", "free space"}},
		},
		"read-only state directory": {
			`mount --bind $STATE $STATE; mount -o remount,bind,ro $STATE`,
			fault{want: []string{"error state-dir"}, contains: []string{"mounted read-only"}},
		},
		"read-only plugin directory": {
			`mount --bind $STORE $STORE; mount -o remount,bind,ro $STORE`,
			fault{want: []string{"error plugin-state"}, contains: []string{"mounted read-only", "ipam.dataDir"}},
		},
		"noexec plugins": {
			`mount --bind $BIN $BIN; mount -o remount,bind,noexec $BIN`,
			fault{want: []string{"error plugin"}, contains: []string{"permission denied", "without noexec"}},
		},
		"no machine ID": {
			`for id in /etc/machine-id /sys/class/dmi/id/product_uuid; do test ! -e $id || mount --bind /dev/null $id; done`,
			fault{want: []string{"warning machine-id"}, contains: []string{"/etc/machine-id"}},
		},
		"plugin directory from another path": {
			`mount -t tmpfs none ${STORE%/y}; cd ${STORE%/y}; mkdir x y; mount --bind x y`,
			fault{make: func(t *testing.T, n *harness.Node) {
				n.Env = append(n.Env, "KUBERNETES_SERVICE_HOST=10.96.0.1")
				n.StoreDir = filepath.Join(n.StoreDir, "y")
			}, want: []string{"warning plugin-state"}, contains: []string{`"/x"`, "same directory"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			under := privateMounts(t, c.mount)
			n := harness.NewNode(t)
			n.Env = append(n.Env, "STATE="+n.StateDir, "STORE="+n.StoreDir, "BIN="+n.BinDir)
			for _, dir := range []string{n.StateDir, n.StoreDir} {
				if err := os.Mkdir(dir, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			if c.make != nil {
				c.make(t, n)
			}
			n.WriteNetwork(t, "05-cilium", harness.DualStack())
			doctorWithOptions(t, n, under).wantProblems(t, append([]string{"error sidecar"}, c.want...), c.contains...)
		})
	}
}
