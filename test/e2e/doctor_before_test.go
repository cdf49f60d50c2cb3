package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// Faults of a node on which the daemon does not run, as doctor reports them.
func TestDoctorBeforeStart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		// mount is a shell script for a private mount namespace, with the state directory in $STATE, the
		// plugin's in $STORE and that of the plugins in $BIN.
		mount string
		make  func(n *harness.Node)
		// want are the states and checks of the problems besides "error daemon", and contains texts of
		// their messages and remedies.
		want, contains []string
	}{
		"plugin directory in the container": {
			mount: ":",
			make: func(n *harness.Node) {
				n.Env = append(n.Env, "KUBERNETES_SERVICE_HOST=10.96.0.1")
				n.StoreDir = "/" + filepath.Base(n.Dir) + "-leases"
			},
			want: []string{"error plugin"}, contains: []string{"-leases", "the same addresses", "mounted"},
		},
		"state directory almost full": {
			mount: `mount -t tmpfs -o size=64k none $STATE`,
			want:  []string{"error state-dir", "error disk-space"}, contains: []string{"64 KiB", "free space"},
		},
		"read-only state directory": {
			mount: `mount --bind $STATE $STATE; mount -o remount,bind,ro $STATE`,
			want:  []string{"error state-dir"}, contains: []string{"mounted read-only"},
		},
		"read-only plugin directory": {
			mount: `mount --bind $STORE $STORE; mount -o remount,bind,ro $STORE`,
			want:  []string{"error plugin-state"}, contains: []string{"mounted read-only", "ipam.dataDir"},
		},
		"noexec plugins": {
			mount: `mount --bind $BIN $BIN; mount -o remount,bind,noexec $BIN`,
			make:  func(n *harness.Node) { n.Flags = append(n.Flags, hostLocalProgram) },
			want:  []string{"error plugin"}, contains: []string{"permission denied", "without noexec"},
		},
		"plugin directory from another path": {
			mount: `mount -t tmpfs none ${STORE%/y}; cd ${STORE%/y}; mkdir x y; mount --bind x y`,
			make: func(n *harness.Node) {
				n.Env = append(n.Env, "KUBERNETES_SERVICE_HOST=10.96.0.1")
				n.StoreDir = filepath.Join(n.StoreDir, "y")
			},
			want: []string{"warning plugin-state"}, contains: []string{`"/x"`, "same directory"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := harness.NewNode(t)
			n.Env = append(n.Env, "STATE="+n.StateDir, "STORE="+n.StoreDir, "BIN="+n.BinDir)
			check.Must(t, errors.Join(os.Mkdir(n.StateDir, 0o700), os.Mkdir(n.StoreDir, 0o700)))
			if c.make != nil {
				c.make(n)
			}
			n.WriteNetwork(t, "05-cilium", harness.DualStack())
			doctorWithOptions(t, n, privateMounts(t, c.mount)).wantProblems(t, append([]string{"error daemon"}, c.want...), c.contains...)
		})
	}
}

// hostLocalProgram runs the program, as of every other plugin.
const hostLocalProgram = "--host-local=program"

func removePlugin(t *testing.T, n *harness.Node) {
	t.Helper()
	check.Must(t, os.Remove(filepath.Join(n.BinDir, "host-local")))
}
