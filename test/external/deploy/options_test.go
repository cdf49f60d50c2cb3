package deploy

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// fixed has the options that manifests set by arguments, the environment, mounts or, for the group of
// the socket, the group of the process.
var fixed = []string{"config-dir", "cni-bin-dir", "cni-conf-dir", "max-plugin-processes", "node-name", "pod-name", "socket-group", "socket-path", "state-dir"}

// flagLine matches a flag in the output of --help.
var flagLine = regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z0-9-]+)`)

// serveOptions returns the options of the real binary.
func serveOptions(t *testing.T) []string {
	t.Helper()
	out := harness.NewNode(t).Command(t, "serve", "--help")
	var names []string
	_, flags, _ := strings.Cut(out.Stdout, "Flags:")
	for _, m := range flagLine.FindAllStringSubmatch(flags, -1) {
		if m[1] != "help" {
			names = append(names, m[1])
		}
	}
	if len(names) < 20 {
		t.Fatalf("too few options %v in:\n%s", names, out.Stdout)
	}
	return names
}

// With the chart an option that is missing in the volume cannot be set; otherwise every key of the ConfigMap is one.
func TestChartOptions(t *testing.T) {
	want := slices.DeleteFunc(serveOptions(t), func(o string) bool { return slices.Contains(fixed, o) })
	shared := []string{"enable-ipv4", "enable-ipv6", "ipam-default-ip-pool", "local-router-ipv4", "local-router-ipv6"}
	eachInChart(t, func(t *testing.T, d deployed) {
		var got []string
		for _, item := range d.volume(t, "delegated-ipam-options").ConfigMap.Items {
			got = append(got, item.Path)
			key := "delegated-ipam-" + item.Path
			if slices.Contains(shared, item.Path) {
				key = item.Path
			}
			if item.Key != key {
				t.Errorf("%s is read from %s; want %s", item.Path, item.Key, key)
			}
		}
		if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
			t.Errorf("the options are %v\nwant %v", got, want)
		}
	})
}

// Options are read at the start, so a change must replace the pods: by the chart's checksum of the
// configuration, or by a new name of the ConfigMap.
func TestChangedOptionReplacesPods(t *testing.T) {
	each(t, func(t *testing.T, d deployed) {
		annotations := named[*appsv1.DaemonSet](t, d.all, d.daemonSet).Spec.Template.Annotations
		switch {
		case d.inChart():
			if annotations[configChecksum] == "" {
				t.Errorf("the annotations %v lack %s", annotations, configChecksum)
			}
		case annotations["checksum/config"] == "" && !suffix.MatchString(d.volume(t, "options").ConfigMap.Name):
			t.Error("the name of the ConfigMap has no hash, and the pod no checksum of it")
		}
	})
}

// TestServeWithOptions adds flags of the harness, so it does not show every unknown option.
func TestOptionsAccepted(t *testing.T) {
	each(t, func(t *testing.T, d deployed) {
		n := harness.NewNode(t)
		args := append([]string{"serve"}, d.daemon.Args...)
		for name, value := range d.files(t, "/etc/delegated-ipam/options") {
			args = append(args, "--"+name+"="+value)
		}
		if out := n.Command(t, append(args, "--help")...); out.ExitCode != 0 {
			t.Errorf("%q: exit status %d: %s", args, out.ExitCode, out.Stderr)
		}
	})
}

// The real binary is started with the arguments and files of its container, except for
// directories of the test, and allocates for an owner of the installation.
func TestServeWithOptions(t *testing.T) {
	each(t, func(t *testing.T, d deployed) {
		n := harness.NewNode(t)
		options := d.files(t, "/etc/delegated-ipam/options")
		nw := harness.IPv4Only()
		if options["enable-ipv4"] == "false" {
			nw.Subnets = []string{"fd00:15::/112"}
		}
		inTest := strings.NewReplacer("/etc/delegated-ipam", n.Dir, `"type": "host-local",`, `"type": "host-local", "dataDir": "`+n.StoreDir+`",`)
		write(t, filepath.Join(n.Dir, "options"), options, inTest)
		switch d.network {
		case "":
			// The agent writes this configuration for its pods.
			n.WriteNetwork(t, "05-cilium", nw)
		case "network":
			rendered := strings.ReplaceAll(d.template(t), `"${ranges}"`, `[[{"subnet": "`+nw.Subnets[0]+`"}]], "dataDir": "`+n.StoreDir+`"`)
			write(t, filepath.Join(n.Dir, "network"), map[string]string{"pods.conflist": rendered}, inTest)
		case "conflist":
			t.Skip("whereabouts needs an API server: make plugin-test")
		}
		owner := "ciliumnode-0"
		if !d.bridge {
			owner = "router"
		}
		if want := []string{"delegated-ipam", "serve"}; !slices.Equal(d.daemon.Command, want) {
			t.Fatalf("the command is %v; want %v", d.daemon.Command, want)
		}
		var args []string
		for _, a := range d.daemon.Args {
			args = append(args, inTest.Replace(a))
		}
		s := n.Start(t, args...)
		if got := s.Allocate(t, harness.Request{Owner: owner}).Addresses(); len(got) != 1 {
			t.Errorf("%s got %v", owner, got)
		}
		refused := map[bool]int{true: 403, false: 201}[d.bridge || d.patched]
		s.TryAllocate(t, harness.Request{Owner: "unknown"}).WantStatus(t, refused)
	})
}

// write creates a directory with files.
func write(t *testing.T, dir string, files map[string]string, in *strings.Replacer) {
	t.Helper()
	check.Must(t, os.MkdirAll(dir, 0o755))
	for name := range maps.Keys(files) {
		check.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(in.Replace(files[name])), 0o644))
	}
}
