package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// What only a mount shows. Each is one that nobody else sees.
func TestDoctorFindsWhatIsWrongWithAMount(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mount string // sh, with the folder of the state in $STATE and of the plugin in $STORE
		trouble
	}{
		"a state folder with hardly any room": {
			`mount -t tmpfs -o size=64k none $STATE`,
			trouble{want: []string{"error state-dir", "error room"}, says: []string{"64 KiB", "make room"}},
		},
		"a plugin folder with hardly any inodes": {
			`mount -t tmpfs -o size=64m,nr_inodes=50 none $STORE`,
			trouble{want: []string{"error room"}, says: []string{"inodes left", "make room"}},
		},
		"a plugin folder with little room": {
			`mount -t tmpfs -o size=4m none $STORE`,
			trouble{want: []string{"warning room"}, says: []string{"4096 KiB", "make room"}},
		},
		"a state folder that is read-only": {
			`mount --bind $STATE $STATE; mount -o remount,bind,ro $STATE`,
			trouble{want: []string{"error state-dir"}, says: []string{"mounted read-only"}},
		},
		"a plugin folder that is read-only": {
			`mount --bind $STORE $STORE; mount -o remount,bind,ro $STORE`,
			trouble{want: []string{"error plugin-state"}, says: []string{"mounted read-only", "ipam.dataDir"}},
		},
		"plugins on a file system without programs": {
			`mount --bind $BIN $BIN; mount -o remount,bind,noexec $BIN`,
			trouble{want: []string{"error plugin"}, says: []string{"permission denied", "without noexec"}},
		},
		"a machine without an ID": {
			`for id in /etc/machine-id /sys/class/dmi/id/product_uuid; do test ! -e $id || mount --bind /dev/null $id; done`,
			trouble{want: []string{"warning machine-id"}, says: []string{"/etc/machine-id"}},
		},
		"a plugin folder that is mounted from elsewhere": {
			`mount -t tmpfs none ${STORE%/y}; cd ${STORE%/y}; mkdir x y; mount --bind x y`,
			trouble{make: func(t *testing.T, n *harness.Node) {
				n.Env = append(n.Env, "KUBERNETES_SERVICE_HOST=10.96.0.1")
				n.StoreDir = filepath.Join(n.StoreDir, "y")
			}, want: []string{"warning plugin-state"}, says: []string{`"/x"`, "same folder"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			under := mounted(t, c.mount)
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
			doctorOf(t, n, under).wants(t, append([]string{"error sidecar"}, c.want...), c.says...)
		})
	}
}
