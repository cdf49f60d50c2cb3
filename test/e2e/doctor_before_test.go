package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// fault is a fault of a node on which the sidecar does not run.
type fault struct {
	make  func(t *testing.T, n *harness.Node)
	flags []string
	// want are the states and checks of the problems besides "error sidecar", and contains
	// texts of their messages and remedies.
	want, contains []string
}

func TestDoctorBeforeStart(t *testing.T) {
	t.Parallel()
	plugin := func(n *harness.Node) string { return filepath.Join(n.BinDir, "host-local") }
	conf := func(text string) func(*testing.T, *harness.Node) {
		return func(t *testing.T, n *harness.Node) { n.WriteConf(t, "05-cilium.conflist", []byte(text)) }
	}
	for name, c := range map[string]fault{
		"no CNI configuration": {
			make: func(t *testing.T, n *harness.Node) { removeFile(t, filepath.Join(n.ConfDir, "05-cilium.conflist")) },
			want: []string{"error cni-config"}, contains: []string{"found no such file", "--cni-conf-dir"},
		},
		"invalid CNI configuration": {
			make: conf(`{"name":`), want: []string{"error cni-config"}, contains: []string{"05-cilium.conflist", "unexpected end of JSON"},
		},
		"CNI configuration without IPAM": {
			make: conf(`{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"cilium-cni"}]}`),
			want: []string{"error cni-config"}, contains: []string{"no plugin of its chain sets ipam.type"},
		},
		"unknown network": {
			flags: []string{"--cni-network=blue"}, want: []string{"error cni-config"}, contains: []string{`"blue"`, `"pods"`},
		},
		"GC by the runtime": {
			make: func(t *testing.T, n *harness.Node) {
				nw := harness.DualStack()
				nw.CNIVersion = "1.1.0"
				n.WriteNetwork(t, "05-cilium", nw)
			},
			want: []string{"warning runtime-gc"}, contains: []string{"disableGC", "05-cilium.conflist"},
		},
		"missing plugin": {
			make: func(t *testing.T, n *harness.Node) { removeFile(t, plugin(n)) },
			want: []string{"error plugin"}, contains: []string{"host-local", "--cni-bin-dir"},
		},
		"plugin is not executable": {
			make: func(t *testing.T, n *harness.Node) {
				if err := os.Chmod(plugin(n), 0o600); err != nil {
					t.Fatal(err)
				}
			},
			want: []string{"error plugin"}, contains: []string{"permission denied", "mode 0755"},
		},
		"plugin for another processor": {
			make: func(t *testing.T, n *harness.Node) { changeProcessor(t, plugin(n)) },
			want: []string{"error plugin"}, contains: []string{"exec format error", "EM_S390", "expected an executable for linux/"},
		},
		"plugin without its loader": {
			make: func(t *testing.T, n *harness.Node) { replaceLoader(t, plugin(n)) },
			want: []string{"error plugin"}, contains: []string{"the loader", "statically linked"},
		},
		"script without its interpreter": {
			make: func(t *testing.T, n *harness.Node) { n.InstallScript(t, "host-local", "#!/no/such/shell\n") },
			want: []string{"error plugin"}, contains: []string{"#!/no/such/shell"},
		},
		"VERSION fails": {
			make: func(t *testing.T, n *harness.Node) {
				n.InstallScript(t, "host-local", "#!/bin/sh\necho it broke >&2\nexit 1\n")
			},
			want: []string{"error cni-versions"}, contains: []string{"it broke", "VERSION"},
		},
		"unsupported CNI version": {
			make: func(t *testing.T, n *harness.Node) {
				n.InstallScript(t, "host-local", "#!/bin/sh\necho '{\"cniVersion\":\"9.0.0\",\"supportedVersions\":[\"9.0.0\"]}'\n")
			},
			want: []string{"error cni-versions"}, contains: []string{"9.0.0", "1.1.0"},
		},
		"unsafe plugin": {
			make: func(t *testing.T, n *harness.Node) {
				n.InstallScripted(t, "whereabouts")
				n.WriteNetwork(t, "05-cilium", harness.Network{Name: "pods", CNIVersion: "1.0.0", Plugin: "whereabouts", IPAM: ranges()})
			},
			want: []string{"error plugin", "error plugin-files"}, contains: []string{"whereabouts", "(2) its DEL reports success", "--accept-unsafe-plugin", "ipam.configuration_path"},
		},
		"missing profile": {
			flags: []string{"--plugin-profile=/no/such/profile.json"}, want: []string{"error plugin"}, contains: []string{"--plugin-profile", "/no/such/profile.json"},
		},
		"own network namespace": {
			flags: []string{"--cni-netns=/proc/self/ns/net"}, want: []string{"error netns"}, contains: []string{"of this process", "--cni-netns"},
		},
		"relative plugin directory": {
			make: func(t *testing.T, n *harness.Node) {
				n.StoreDir = "leases"
				n.WriteNetwork(t, "05-cilium", harness.DualStack())
			},
			want: []string{"error plugin-state", "error store"}, contains: []string{"ipam.dataDir", `"leases"`, "absolute"},
		},
		"plugin directory in the container": {
			make: func(t *testing.T, n *harness.Node) {
				n.Env = append(n.Env, "KUBERNETES_SERVICE_HOST=10.96.0.1")
				n.StoreDir = "/" + filepath.Base(n.Dir) + "-leases"
				n.WriteNetwork(t, "05-cilium", harness.DualStack())
			},
			want: []string{"error plugin-state"}, contains: []string{"-leases", "the same addresses", "hostPath"},
		},
		"world-writable socket": {
			flags: []string{"--socket-mode=0666"}, want: []string{"warning socket"}, contains: []string{"0666", "--socket-mode=0660"},
		},
		"unknown group": {
			flags: []string{"--socket-group=no-such-group"}, want: []string{"error socket"}, contains: []string{"no-such-group", "--socket-group"},
		},
		"world-writable directory": {
			make: func(t *testing.T, n *harness.Node) {
				if err := os.Chmod(n.Dir, 0o777); err != nil {
					t.Fatal(err)
				}
			},
			want: []string{"warning socket"}, contains: []string{"world-writable", "chmod go-w"},
		},
		"state directory that Cilium removes": {
			flags: []string{"--state-dir=/var/run/cilium/delegated-ipam"}, want: []string{"error state-dir"}, contains: []string{"cleanState", "--state-dir"},
		},
		"state directory is a link": {
			make: func(t *testing.T, n *harness.Node) {
				if err := os.Symlink("/", n.StateDir); err != nil {
					t.Fatal(err)
				}
			},
			want: []string{"error state-dir"}, contains: []string{"symbolic link"},
		},
		"state directory in memory": {
			flags: []string{"--state-dir=/dev/shm/delegated-ipam-none"}, want: []string{"error state-dir"}, contains: []string{"tmpfs", "a reboot erases it"},
		},
		"invalid option": {
			flags: []string{"--verify-interval=-1s"}, want: []string{"error options"}, contains: []string{"--verify-interval", "does not start"},
		},
		"file that is not an option": {
			make: func(t *testing.T, n *harness.Node) {
				if err := os.WriteFile(filepath.Join(n.ConfDir, "owner"), nil, 0o600); err != nil {
					t.Fatal(err)
				}
				n.Env = append(n.Env, "DELEGATED_IPAM_CONFIG_DIR="+n.ConfDir)
			},
			want: []string{"error options", "error options"}, contains: []string{"owner is not an option", "checks that depend on the options were skipped"},
		},
		"variable that is not an option": {
			make: func(_ *testing.T, n *harness.Node) { n.Env = append(n.Env, "DELEGATED_IPAM_OWNER=router") },
			want: []string{"warning options"}, contains: []string{"DELEGATED_IPAM_OWNER"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := nodeWith(t, harness.DualStack())
			if c.make != nil {
				c.make(t, n)
			}
			doctorWithOptions(t, n, nil, c.flags...).wantProblems(t, append([]string{"error sidecar"}, c.want...), c.contains...)
		})
	}
}
