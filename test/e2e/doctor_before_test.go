package e2e

import (
	"net/http"
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
		make  func(t *testing.T, n *harness.Node)
		flags []string
		// scripted is the type of the scripted plugin; empty for host-local.
		scripted string
		// want are the states and checks of the problems besides "error daemon", and contains texts of
		// their messages and remedies.
		want, contains []string
	}{
		"unsafe plugin": {
			scripted: "whereabouts",
			want:     []string{"error plugin", "error plugin-files"}, contains: []string{"whereabouts", "(2) its DEL reports success", "--accept-unsafe-plugin", "ipam.configuration_path"},
		},
		"plugin directory in the container": {
			make: func(t *testing.T, n *harness.Node) {
				n.Env = append(n.Env, "KUBERNETES_SERVICE_HOST=10.96.0.1")
				n.StoreDir = "/" + filepath.Base(n.Dir) + "-leases"
			},
			want: []string{"error plugin"}, contains: []string{"-leases", "the same addresses", "mounted"},
		},
		"world-writable directory": {
			make: func(t *testing.T, n *harness.Node) { check.Must(t, os.Chmod(n.Dir, 0o777)) },
			want: []string{"warning socket"}, contains: []string{"world-writable", "chmod go-w"},
		},
		"state directory in memory": {
			flags: []string{"--state-dir=/dev/shm/delegated-ipam-none"}, want: []string{"error state-dir"}, contains: []string{"tmpfs", "a reboot erases it"},
		},
		"invalid option": {
			flags: []string{"--verify-interval=-1s"}, want: []string{"error options"}, contains: []string{"--verify-interval", "does not start"},
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
			make:  func(_ *testing.T, n *harness.Node) { n.Flags = append(n.Flags, hostLocalProgram) },
			want:  []string{"error plugin"}, contains: []string{"permission denied", "without noexec"},
		},
		"plugin directory from another path": {
			mount: `mount -t tmpfs none ${STORE%/y}; cd ${STORE%/y}; mkdir x y; mount --bind x y`,
			make: func(_ *testing.T, n *harness.Node) {
				n.Env = append(n.Env, "KUBERNETES_SERVICE_HOST=10.96.0.1")
				n.StoreDir = filepath.Join(n.StoreDir, "y")
			},
			want: []string{"warning plugin-state"}, contains: []string{`"/x"`, "same directory"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := harness.NewNode(t)
			var under []string
			if c.mount != "" {
				under = privateMounts(t, c.mount)
				n.Env = append(n.Env, "STATE="+n.StateDir, "STORE="+n.StoreDir, "BIN="+n.BinDir)
				check.Must(t, os.Mkdir(n.StateDir, 0o700))
				check.Must(t, os.Mkdir(n.StoreDir, 0o700))
			}
			if c.make != nil {
				c.make(t, n)
			}
			nw := harness.DualStack()
			if c.scripted != "" {
				n.InstallScripted(t, c.scripted)
				nw.Plugin, nw.IPAM = c.scripted, ranges()
			}
			n.WriteNetwork(t, "05-cilium", nw)
			doctorWithOptions(t, n, under, c.flags...).wantProblems(t, append([]string{"error daemon"}, c.want...), c.contains...)
		})
	}
}

// Without a usable plugin or configuration the daemon serves and is not ready, and doctor reports the
// reason. It becomes ready without a restart.
func TestUnusablePlugin(t *testing.T) {
	t.Parallel()
	script := func(lines string) func(*testing.T, *harness.Node) {
		return func(t *testing.T, n *harness.Node) { n.InstallScript(t, "host-local", "#!/bin/sh\n"+lines) }
	}
	conf := func(text string) func(*testing.T, *harness.Node) {
		return func(t *testing.T, n *harness.Node) { n.WriteConf(t, "05-cilium.conflist", []byte(text)) }
	}
	tests := map[string]struct {
		spoil func(t *testing.T, n *harness.Node)
		// check is the failed check of doctor. texts must be in its findings, the response and readiness.
		check string
		texts []string
	}{
		"no configuration":        {func(t *testing.T, n *harness.Node) { emptyDir(t, n.ConfDir) }, "cni-config", []string{"no CNI configuration"}},
		"truncated configuration": {conf(`{"name": "pods", "plugins": [`), "cni-config", []string{"05-cilium.conflist", "unexpected end of JSON"}},
		"network without ipam": {
			conf(`{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"cilium-cni"}]}`), "cni-config", []string{"no plugin of its chain"},
		},
		"missing": {removePlugin, "plugin", []string{"host-local", "--cni-bin-dir"}},
		"not executable": {func(t *testing.T, n *harness.Node) {
			check.Must(t, os.Chmod(filepath.Join(n.BinDir, "host-local"), 0o644))
		}, "plugin", []string{"host-local", "permission denied"}},
		"VERSION fails":         {script("echo 'out of order' >&2\nexit 1\n"), "plugin", []string{"host-local", "VERSION", "out of order"}},
		"no common CNI version": {script("echo '{\"cniVersion\":\"9.0.0\",\"supportedVersions\":[\"9.0.0\"]}'\n"), "plugin", []string{"9.0.0", "1.1.0"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := nodeWith(t, harness.IPv4Only())
			n.Flags = append(n.Flags, hostLocalProgram)
			tt.spoil(t, n)
			doctorWithOptions(t, n, nil).wantProblems(t, []string{"error daemon", "error " + tt.check}, tt.texts...)
			s := n.Launch(t)
			s.WaitServing(t)
			a, ready := s.TryAllocate(t, harness.Request{Owner: "router"}), s.Ready()
			texts := append(tt.texts, n.ConfDir)
			a.WantError(t, http.StatusBadGateway, texts...)
			wantNotReady(t, ready, texts...)
			wantProbes(t, n, tt.texts[0])

			n.InstallPlugin(t, "host-local")
			n.WriteNetwork(t, "05-cilium", harness.IPv4Only())
			s.WaitReady(t)
			wantProbes(t, n, "")
			s.AllocateFor(t, "router")
			s.WaitConsistent(t)
			s.Stop(t)
		})
	}
}

// hostLocalProgram runs the program, as of every other plugin.
const hostLocalProgram = "--host-local=program"

func removePlugin(t *testing.T, n *harness.Node) {
	t.Helper()
	check.Must(t, os.Remove(filepath.Join(n.BinDir, "host-local")))
}
