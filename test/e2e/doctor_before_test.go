package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// trouble is something that is wrong on a node before the sidecar runs.
type trouble struct {
	make  func(t *testing.T, n *harness.Node)
	flags []string
	want  []string
	says  []string
}

func TestDoctorFindsBeforeTheFirstStart(t *testing.T) {
	t.Parallel()
	plugin := func(n *harness.Node) string { return filepath.Join(n.BinDir, "host-local") }
	conf := func(text string) func(*testing.T, *harness.Node) {
		return func(t *testing.T, n *harness.Node) { n.WriteConf(t, "05-cilium.conflist", []byte(text)) }
	}
	for name, c := range map[string]trouble{
		"no CNI configuration": {
			make: func(t *testing.T, n *harness.Node) { removeFile(t, filepath.Join(n.ConfDir, "05-cilium.conflist")) },
			want: []string{"error conflist"}, says: []string{"found no such file", "--cni-conf-dir"},
		},
		"a configuration that is no JSON": {
			make: conf(`{"name":`), want: []string{"error conflist"}, says: []string{"05-cilium.conflist", "unexpected end of JSON"},
		},
		"a configuration that does not delegate": {
			make: conf(`{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"cilium-cni"}]}`),
			want: []string{"error conflist"}, says: []string{"no plugin of its chain sets ipam.type"},
		},
		"a network that is not there": {
			flags: []string{"--cni-network=blue"}, want: []string{"error conflist"}, says: []string{`"blue"`, `"pods"`},
		},
		"a configuration that a GC of the runtime is called for": {
			make: func(t *testing.T, n *harness.Node) {
				nw := harness.DualStack()
				nw.CNIVersion = "1.1.0"
				n.WriteNetwork(t, "05-cilium", nw)
			},
			want: []string{"warning gc"}, says: []string{"disableGC", "05-cilium.conflist"},
		},
		"no plugin": {
			make: func(t *testing.T, n *harness.Node) { removeFile(t, plugin(n)) },
			want: []string{"error plugin"}, says: []string{"host-local", "--cni-bin-dir"},
		},
		"a plugin that is not executable": {
			make: func(t *testing.T, n *harness.Node) {
				if err := os.Chmod(plugin(n), 0o600); err != nil {
					t.Fatal(err)
				}
			},
			want: []string{"error plugin"}, says: []string{"permission denied", "mode 0755"},
		},
		"a plugin for another processor": {
			make: func(t *testing.T, n *harness.Node) { forAnotherProcessor(t, plugin(n)) },
			want: []string{"error plugin"}, says: []string{"exec format error", "EM_S390", "expected an executable for linux/"},
		},
		"a plugin whose loader is missing": {
			make: func(t *testing.T, n *harness.Node) { withoutItsLoader(t, plugin(n)) },
			want: []string{"error plugin"}, says: []string{"the loader", "statically linked"},
		},
		"a script whose interpreter is missing": {
			make: func(t *testing.T, n *harness.Node) { n.InstallScript(t, "host-local", "#!/no/such/shell\n") },
			want: []string{"error plugin"}, says: []string{"#!/no/such/shell"},
		},
		"a plugin that does not answer VERSION": {
			make: func(t *testing.T, n *harness.Node) {
				n.InstallScript(t, "host-local", "#!/bin/sh\necho it broke >&2\nexit 1\n")
			},
			want: []string{"error versions"}, says: []string{"it broke", "VERSION"},
		},
		"a plugin of another time": {
			make: func(t *testing.T, n *harness.Node) {
				n.InstallScript(t, "host-local", "#!/bin/sh\necho '{\"cniVersion\":\"9.0.0\",\"supportedVersions\":[\"9.0.0\"]}'\n")
			},
			want: []string{"error versions"}, says: []string{"9.0.0", "1.1.0"},
		},
		"a plugin that loses addresses": {
			make: func(t *testing.T, n *harness.Node) {
				n.InstallScripted(t, "whereabouts")
				n.WriteNetwork(t, "05-cilium", harness.Network{Name: "pods", CNIVersion: "1.0.0", Plugin: "whereabouts", IPAM: ranges()})
			},
			want: []string{"error plugin"}, says: []string{"whereabouts", "reconciler", "--accept-unsafe-plugin"},
		},
		"a profile file that is not there": {
			flags: []string{"--plugin-profile=/no/such/profile.json"}, want: []string{"error plugin"}, says: []string{"--plugin-profile", "/no/such/profile.json"},
		},
		"our own network namespace": {
			flags: []string{"--cni-netns=/proc/self/ns/net"}, want: []string{"error netns"}, says: []string{"is our own", "--cni-netns"},
		},
		"a plugin folder that is relative": {
			make: func(t *testing.T, n *harness.Node) {
				n.StoreDir = "leases"
				n.WriteNetwork(t, "05-cilium", harness.DualStack())
			},
			want: []string{"error plugin-state", "error store"}, says: []string{"ipam.dataDir", `"leases"`, "absolute"},
		},
		"a plugin folder in the pod's own file system": {
			make: func(t *testing.T, n *harness.Node) {
				n.Env = append(n.Env, "KUBERNETES_SERVICE_HOST=10.96.0.1")
				n.StoreDir = "/" + filepath.Base(n.Dir) + "-leases"
				n.WriteNetwork(t, "05-cilium", harness.DualStack())
			},
			want: []string{"error plugin-state"}, says: []string{"-leases", "the same addresses", "hostPath"},
		},
		"a socket for everybody": {
			flags: []string{"--socket-mode=0666"}, want: []string{"warning socket"}, says: []string{"0666", "--socket-mode=0660"},
		},
		"a group that is not known": {
			flags: []string{"--socket-group=no-such-group"}, want: []string{"error socket"}, says: []string{"no-such-group", "--socket-group"},
		},
		"a socket in a folder for everybody": {
			make: func(t *testing.T, n *harness.Node) {
				if err := os.Chmod(n.Dir, 0o777); err != nil {
					t.Fatal(err)
				}
			},
			want: []string{"warning socket"}, says: []string{"world-writable", "chmod o-w"},
		},
		"a state folder that Cilium removes": {
			flags: []string{"--state-dir=/var/run/cilium/delegated-ipam"}, want: []string{"error state-dir"}, says: []string{"cleanState", "--state-dir"},
		},
		"a state folder that is a link": {
			make: func(t *testing.T, n *harness.Node) {
				if err := os.Symlink("/", n.StateDir); err != nil {
					t.Fatal(err)
				}
			},
			want: []string{"error state-dir"}, says: []string{"symbolic link"},
		},
		"a state folder in memory": {
			flags: []string{"--state-dir=/dev/shm/delegated-ipam-none"}, want: []string{"error state-dir"}, says: []string{"tmpfs", "a reboot loses it"},
		},
		"an option that cannot be": {
			flags: []string{"--verify-interval=-1s"}, want: []string{"error options"}, says: []string{"--verify-interval", "does not start"},
		},
		"a file that is no option": {
			make: func(t *testing.T, n *harness.Node) {
				if err := os.WriteFile(filepath.Join(n.ConfDir, "owner"), nil, 0o600); err != nil {
					t.Fatal(err)
				}
				n.Env = append(n.Env, "DELEGATED_IPAM_CONFIG_DIR="+n.ConfDir)
			},
			want: []string{"error options", "error options"}, says: []string{"owner is not an option", "nothing that depends on the options"},
		},
		"a variable that is no option": {
			make: func(_ *testing.T, n *harness.Node) { n.Env = append(n.Env, "DELEGATED_IPAM_OWNER=router") },
			want: []string{"warning options"}, says: []string{"DELEGATED_IPAM_OWNER"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := nodeWith(t, harness.DualStack())
			if c.make != nil {
				c.make(t, n)
			}
			doctorOf(t, n, nil, c.flags...).wants(t, append([]string{"error sidecar"}, c.want...), c.says...)
		})
	}
}
