package e2e

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestDoctorFindsNothingOnAnOrdinaryNodeBeforeAndWhileTheSidecarRuns(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n *harness.Node) {
		d := doctorOf(t, n, nil)
		d.wants(t, []string{"error sidecar"}, "no sidecar can be reached", "what a start would find")
		for _, check := range []string{"options", "place", "socket", "conflist", "plugin", "versions", "netns", "gc", "guard", "plugin-state", "empty-files"} {
			if !d.is(check) {
				t.Errorf("before the start %s is not ok: %+v", check, d.found)
			}
		}
		if entries, err := os.ReadDir(n.Dir); err != nil || len(entries) != 2 {
			t.Errorf("after a look the node has %v, %v; want the two folders of before", entries, err)
		}

		s := n.Start(t)
		s.Allocate(t, harness.Request{Owner: "router"})
		d = doctorInside(t, n)
		d.wants(t, nil)
		for _, check := range []string{"sidecar", "options", "place", "conflist", "versions", "guard", "plugin-state", "leases", "attachments"} {
			if !d.is(check) {
				t.Errorf("%s is not ok or was not looked at: %+v", check, d.found)
			}
		}
	})
}

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
			want: []string{"warning socket"}, says: []string{"everybody may write", "chmod o-w"},
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
			want: []string{"error options", "error options"}, says: []string{"owner is no option", "nothing that depends on the options"},
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

func TestDoctorFindsASecondSidecarOfTheNetwork(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	first := n.Start(t)
	doctorOf(t, n, nil, "--socket-path="+n.Dir+"/second.sock", "--state-dir="+n.Dir+"/second").
		wants(t, []string{"error sidecar", "error guard"}, fmt.Sprintf("PID %d", first.PID()), n.StateDir, "--node-name")
}

func TestDoctorWarnsThatItLooksFromAnotherContainerOrAsAnotherUser(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	n.Start(t)
	doctorInside(t, n, mounted(t, "")...).wants(t, []string{"warning place"}, "another container")
}

func TestDoctorFindsWhatHasChangedSinceTheSidecarWasStarted(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	folder := filepath.Join(n.Dir, "config")
	option := func(value string) {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "owners"), []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	option("router")
	n.Env = append(n.Env, "DELEGATED_IPAM_CONFIG_DIR="+folder)
	n.Start(t)
	doctorInside(t, n).wants(t, nil)

	option("router,health")
	doctorInside(t, n).wants(t, []string{"warning options"}, `"router,health" here (config-dir)`, `"router" (config-dir)`, "restart")
	option("router")

	if err := os.Chmod(n.Socket, 0o666); err != nil {
		t.Fatal(err)
	}
	doctorInside(t, n).wants(t, []string{"warning socket"}, "0666")
	if err := os.Chmod(n.Socket, 0o660); err != nil {
		t.Fatal(err)
	}

	n.WriteConf(t, "05-cilium.conflist", []byte(`{"name":`))
	doctorInside(t, n).wants(t, []string{"warning conflist"}, "goes on with", "unexpected end of JSON")
}

func TestDoctorFindsAReleaseThatThePluginRefuses(t *testing.T) {
	t.Parallel()
	n, plugin := scriptedNode(t, "scripted", ranges())
	s := n.Start(t, "--enable-ipv6=false")
	held := s.Allocate(t, harness.Request{Owner: "router"}).Addresses()
	plugin.Script(t, "DEL", `{"error":{"code":111,"msg":"no daemon"}}`)
	s.TryRelease(t, held[0]).Want(t, 500)
	doctorInside(t, n).wants(t, []string{"warning attachments"}, "router", "releasing", "no daemon")
	plugin.Unscript(t, "DEL")
	s.Release(t, held...)
}

func removeFile(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

// forAnotherProcessor turns a binary into one for a mainframe.
func forAnotherProcessor(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// e_machine comes after e_ident and e_type (elf(5)).
	binary.LittleEndian.PutUint16(data[elf.EI_NIDENT+2:], uint16(elf.EM_S390))
	if err := os.WriteFile(path, data, 0o755); err != nil {
		t.Fatal(err)
	}
}

// withoutItsLoader puts a dynamically linked program of this machine in the place of a
// plugin, with the name of its loader changed to one that is not there: as in an image
// without libc.
func withoutItsLoader(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	loader := interpreter(t, data)
	if loader == "" {
		harness.Lack(t, "/bin/sh is not dynamically linked here")
	}
	data = bytes.ReplaceAll(data, []byte(loader), []byte("/x"+strings.Repeat("x", len(loader)-2)))
	removeFile(t, path)
	if err := os.WriteFile(path, data, 0o755); err != nil {
		t.Fatal(err)
	}
}

// interpreter is the loader that a binary names; empty if it names none.
func interpreter(t *testing.T, data []byte) string {
	t.Helper()
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			name := make([]byte, p.Filesz)
			if _, err := p.ReadAt(name, 0); err != nil {
				t.Fatal(err)
			}
			return strings.TrimRight(string(name), "\x00")
		}
	}
	return ""
}
