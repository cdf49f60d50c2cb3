package deploy

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// With Cilium's chart an option that is missing in the volume cannot be set, and a setting that is not mounted is
// ignored; otherwise every key of the ConfigMap is an option.
func TestChartOptions(t *testing.T) {
	// Arguments, the environment, mounts and, for the group of the socket, the group of the process set these.
	want := []string{"conflist", "socket"}
	_, serve := options.NewDaemon(nil)
	serve.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Name != "socket-group" && !slices.Contains(elsewhere["daemon"], f.Name) {
			want = append(want, f.Name)
		}
	})
	d := render(t, installations[1])
	mounted := map[string]bool{"socket": true} // an option of a patched agent
	for _, item := range slices.Concat(d.volume(t, "delegated-ipam-options").ConfigMap.Items, d.volume(t, "delegated-ipam-conflist").ConfigMap.Items) {
		option := strings.TrimPrefix(item.Key, "delegated-ipam-")
		if mounted[option] = true; item.Path != option && item.Path != "pods.conflist" {
			t.Errorf("%s is the file %s", item.Key, item.Path)
		}
	}
	if got := slices.Sorted(maps.Keys(mounted)); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		t.Errorf("the options are %v\nwant %v", got, want)
	}
	for _, i := range installations {
		config := render(t, i).data("cilium-config")
		for key := range config {
			if option, ours := strings.CutPrefix(key, "delegated-ipam-"); ours && !mounted[option] {
				t.Errorf("%s: %s is not mounted", i.name, key)
			}
		}
	}
}

// Each program accepts the arguments of its containers. TestServe adds flags of the harness, so it does not show every
// unknown option. TestInstallCNI runs delegated-ipam-cni.
func TestArguments(t *testing.T) {
	_, bridge := options.NewBridge(nil)
	_, network := options.NewNetwork(nil)
	_, lostNodes := options.NewLostNodes()
	_, uninstall := options.NewUninstall()
	_, audit := options.NewCluster()
	audit.Bool("shared-range", false, "") // of the command
	_, cri := options.NewCRI(nil)
	programs := map[string]*pflag.FlagSet{
		"delegated-ipam-bridge": bridge, "delegated-ipam-bridge network": network, "delegated-ipam-bridge lost-nodes": lostNodes,
		"delegated-ipam-bridge uninstall prepare": uninstall, "delegated-ipam-bridge uninstall finish": uninstall,
		"delegated-ipam-bridge audit": audit, "delegated-ipam-cri": cri,
	}
	n := harness.NewNode(t)
	run := map[string]bool{"delegated-ipam-cni": true}
	eachContainer(t, func(t *testing.T, d deployed, c corev1.Container) {
		words := slices.Concat(c.Command, c.Args)
		if slices.Contains(words, "serve") {
			for name, value := range d.files(t, c, optionsDir) {
				words = append(words, "--"+name+"="+value)
			}
		}
		flags := slices.IndexFunc(append(words, "--"), func(word string) bool { return strings.HasPrefix(word, "--") })
		command := strings.Join(words[:flags], " ")
		switch all := strings.Join(words, " "); {
		case run[all] || run[words[0]]:
		case words[0] == "delegated-ipam":
			run[all] = true
			if out := n.Command(t, append(words[1:], "--help")...); out.ExitCode != 0 {
				t.Errorf("%s: exit status %d: %s", all, out.ExitCode, out.Stderr)
			}
		case programs[command] == nil:
			t.Errorf("%s: unknown program %q", c.Name, command)
		default:
			check.Must(t, programs[command].Parse(words[flags:]))
		}
	})
}

const optionsDir = "/etc/delegated-ipam/options"

// pluginType matches the type of an IPAM plugin for the whole cluster.
var pluginType = regexp.MustCompile(`"type": "(azure-ipam|calico-ipam|whereabouts)"`)

// The real binary is started with the arguments and files of its container, except for directories of the test, and
// allocates for an owner of the installation. A plugin for the whole cluster is the scripted one.
func TestServe(t *testing.T) {
	each(t, func(t *testing.T, d deployed) {
		n := harness.NewNode(t)
		options := d.files(t, d.daemon, optionsDir)
		nw := harness.IPv4Only()
		if options["enable-ipv4"] == "false" {
			nw.Subnets = []string{"fd00:15::/112"}
		}
		inTest := strings.NewReplacer("/etc/delegated-ipam", n.Dir, `"${ranges}"`, `[[{"subnet": "`+nw.Subnets[0]+`"}]], "dataDir": "`+n.StoreDir+`"`)
		write := func(file, text string) string {
			file = filepath.Join(n.Dir, file)
			check.Must(t, os.MkdirAll(filepath.Dir(file), 0o755))
			check.Must(t, os.WriteFile(file, []byte(inTest.Replace(text)), 0o644))
			return inTest.Replace(text)
		}
		// The socket gets the group of the process that creates it, of which the bridge is a member.
		if gids, has := options["allow-gids"]; has && gids != fmt.Sprint(*d.daemon.SecurityContext.RunAsGroup) {
			t.Errorf("allow-gids is %q, and the socket has group %d", gids, *d.daemon.SecurityContext.RunAsGroup)
		}
		for name, value := range options {
			write("options/"+name, value)
		}
		var rendered string
		switch dir, file := path.Split(strings.TrimPrefix(options["cni-conf-file"], "/etc/delegated-ipam/")); dir {
		case "network/":
			rendered = write(dir+file, d.template(t))
		case "conflist/":
			text := d.files(t, d.daemon, "/etc/delegated-ipam/conflist")[file]
			n.InstallScripted(t, pluginType.FindStringSubmatch(text)[1])
			write(dir+file, pluginType.ReplaceAllString(text, `$0, "subnet": "10.15.0.0/24"`))
		default: // the agent writes it for its pods
			n.WriteNetwork(t, "05-cilium", nw)
		}
		var args []string
		for _, a := range d.daemon.Args {
			args = append(args, inTest.Replace(a))
		}
		s := n.Start(t, args...)
		owners, limited := options["owners"]
		owner, _, _ := strings.Cut(strings.ReplaceAll(cmp.Or(owners, "router"), "*", "0"), ",")
		if got := s.Allocate(t, harness.Request{Owner: owner}).Addresses(); len(got) != 1 {
			t.Errorf("%s got %v", owner, got)
		}
		s.TryAllocate(t, harness.Request{Owner: "unknown"}).WantStatus(t, map[bool]int{true: 403, false: 201}[limited])
		if strings.Contains(rendered, "delegated-ipam-cni") {
			wantPod(t, n, s, rendered)
		}
	})
}

// wantPod wants an address for a pod, with the section of the file that the runtime passes.
func wantPod(t *testing.T, n *harness.Node, s *harness.Daemon, rendered string) {
	t.Helper()
	var list struct {
		Plugins []struct{ IPAM map[string]any }
	}
	check.Must(t, yaml.Unmarshal([]byte(rendered), &list))
	list.Plugins[0].IPAM["socket"], list.Plugins[0].IPAM["spool"] = n.Socket, n.Spool()
	pods := n.PodsThrough(t, "not-read", harness.IPv4Only())
	if out, err := pods.Call("ADD", "pod", map[string]any{"ipam": list.Plugins[0].IPAM}); err != nil || !strings.Contains(string(out), `"10.15.0.`) {
		t.Errorf("a pod got %s, %v", out, err)
	}
	if all := s.List(t); !slices.ContainsFunc(all, func(a harness.Attachment) bool { return strings.HasPrefix(a.Owner, "cni/pod/") }) {
		t.Errorf("no pod has an address: %v", all)
	}
}
