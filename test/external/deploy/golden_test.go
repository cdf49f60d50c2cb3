package deploy

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/cli/values"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/diff"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// sets are values of the chart, in the form of "helm template --set", as YAML or as "@FILE". Those before " + " are
// set on both sides of the comparison.
var sets = []string{
	"hostPaths.cniConf=/k3s/net.d,hostPaths.cniBin=/k3s/bin,hostPaths.leases=/l,hostPaths.run=/r,hostPaths.state=/s,hostPaths.network=/n,hostPaths.machineID=",
	"group=4711",
	"apiServer.host=192.0.2.1,apiServer.port=6443",
	"daemon.image.registry=registry.example.com:5000,daemon.image.tag=v1,bridge.image.registry=,bridge.image.repository=b," +
		"bridge.image.digest=sha256:" + digest + ",imagePullSecrets[0].name=pull",

	// The bridge's own owners and group stay, and it may connect to a socket of another group.
	"daemon.options.socket-group=77",
	`daemon.options.owners=router\,health,daemon.options.allow-gids=1000600000`,
	"daemon.options.owners=",
	"bridge.enabled=false + daemon.options.owners=router",
	largeGroups,

	// The probes follow the address of the metrics, where they are served. With the host's network and without a
	// host the kubelet would use the node's address.
	"bridge.metricsAddress=127.0.0.1:9000", "bridge.metricsAddress=0.0.0.0:9000", "bridge.metricsAddress=[::]:9000",
	"network.metricsAddress=127.0.0.1:9000", "network.metricsAddress=0.0.0.0:9000", "network.metricsAddress=[::]:9000",

	// Without the watch the token cannot read the pods of the cluster.
	"bridge.options.watch-pods=true", "bridge.options.watch-pods=false",
	"bridge.options.min-allocate=12",
	"bridge.enabled=false", "network.enabled=false", "bridge.admissionPolicy=false",
	"bridge.serviceAccount.create=false,bridge.serviceAccount.name=given,network.serviceAccount.annotations.a=b,daemon.serviceAccount.create=true",

	// The option works only with the namespaces of the host, also of those that are mounted after the pod's start.
	// For pods it is on, unless it is set.
	"daemon.installCNI=true",
	"daemon.installCNI=true + daemon.options.missing-netns-release-delay=1h",
	"daemon.installCNI=true + daemon.options.missing-netns-release-delay=0s",
	"daemon.options.missing-netns-release-delay=0s",
	"daemon.options.missing-netns-release-delay=10m",
	"daemon.options.missing-netns-release-delay=10m,hostPaths.netns=/run/k3s/net",
	"daemon.runtimeSocket=/run/crio/crio.sock",

	// The values of a part hold for its pods alone, beside those for every part.
	allParts + " + " + common,
	allParts + "," + common + " + " + ofPart("daemon"),
	allParts + "," + common + " + " + ofPart("bridge"),
	allParts + "," + common + " + " + ofPart("network"),
	allParts + "," + common + " + " + ofPart("audit"),
	allParts + "," + common + " + " + ofPart("reclaim"),
	common + " + " + strings.TrimSuffix(ofPart("deleteHook"), ",deleteHook.extraArgs[0]=--log-level=debug"),

	"@chained.yaml",
	"@ways/azure-ipam.yaml", "@ways/calico-ipam.yaml", "@ways/crio.yaml", "@ways/k3s.yaml", "@ways/kind.yaml", "@ways/rke2.yaml", "@ways/whereabouts.yaml",
}

const (
	largeGroups = "{daemon: {options: {enable-ipv6: true, allow-gids: 1000600000, socket-group: 1000600000}}}"

	digest = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	common = "imagePullSecrets[0].name=common,nodeSelector.zone=z,podAnnotations.all=yes"
)

// ofPart returns values of the pods of one part.
func ofPart(part string) string {
	return strings.ReplaceAll("PART.imagePullSecrets[0].name=own,PART.nodeSelector.pool=a,PART.podAnnotations.part=yes,PART.tolerations[0].key=own,PART.extraArgs[0]=--log-level=debug", "PART", part)
}

// Values change these lines of the rendered chart, and no others.
func TestValues(t *testing.T) {
	const file = "testdata/values.diff"
	var got strings.Builder
	for _, set := range sets {
		fmt.Fprintf(&got, "=== %s\n", set)
		base, with, found := strings.Cut(set, " + ")
		if !found {
			base, with = "", set
		}
		before, after := chartText(t, base), chartText(t, base, with)
		both := maps.Clone(before)
		maps.Copy(both, after)
		for _, name := range slices.Sorted(maps.Keys(both)) {
			if before[name] != after[name] {
				got.WriteString("# " + name + lineDiff(t, before[name], after[name]))
			}
		}
	}
	if os.Getenv("UPDATE_GOLDEN") != "" {
		check.Must(t, os.WriteFile(file, []byte(got.String()), 0o644))
	}
	if want := read(t, file); got.String() != want {
		t.Errorf("not the content of %s (UPDATE_GOLDEN=1 go test ./... writes it):\n%s", file, diff.Diff(want, got.String()))
	}
}

// unspecific matches comments and the checksum of a configuration.
var unspecific = regexp.MustCompile(`(?m)^ *#.*\n|checksum/\w+: .*`)

// chartText returns the text of each file of the chart with values, without what is unspecific.
func chartText(t *testing.T, sets ...string) map[string]string {
	t.Helper()
	var given values.Options
	for _, set := range sets {
		switch file, isFile := strings.CutPrefix(set, "@"); {
		case isFile:
			given.ValueFiles = append(given.ValueFiles, filepath.Join(ourChart, file))
		case strings.HasPrefix(set, "{"):
			yaml := filepath.Join(t.TempDir(), "values.yaml")
			check.Must(t, os.WriteFile(yaml, []byte(set), 0o600))
			given.ValueFiles = append(given.ValueFiles, yaml)
		default:
			given.Values = append(given.Values, set)
		}
	}
	files, err := templateFiles(t, ourChart, newest, given, policyAPI)
	check.Must(t, err)
	text := map[string]string{}
	for name, content := range files {
		content = strings.TrimSpace(unspecific.ReplaceAllString(content+"\n", ""))
		if content != "" && path.Base(name) != "NOTES.txt" {
			text[strings.TrimPrefix(name, "delegated-ipam/templates/")] = content + "\n"
		}
	}
	return text
}

// lineDiff returns the lines that differ, below the kind or the name that they belong to.
func lineDiff(t *testing.T, before, after string) string {
	t.Helper()
	if after == "" {
		return " is removed\n"
	}
	dir := t.TempDir()
	check.Must(t, os.WriteFile(filepath.Join(dir, "a"), []byte(before), 0o600))
	check.Must(t, os.WriteFile(filepath.Join(dir, "b"), []byte(after), 0o600))
	cmd := exec.Command("diff", "-U0", "-F", "^kind: \\|- name: [a-z]", "a", "b")
	cmd.Dir = dir
	out, err := cmd.Output()
	if cmd.ProcessState.ExitCode() != 1 {
		t.Fatalf("diff: %v", err)
	}
	lines := []string{"\n"}
	place := ""
	for line := range strings.Lines(strings.SplitN(string(out), "\n", 3)[2]) {
		if _, after, found := strings.Cut(strings.TrimPrefix(line, "@@"), "@@"); found && line[0] == '@' {
			if after = strings.TrimSpace(after); after != place {
				place = after
				lines = append(lines, "@@ "+place+"\n")
			}
			continue
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "")
}

// Without the creation of rights there are still accounts.
func TestNoRights(t *testing.T) {
	accounts := 0
	for _, o := range daemonSets(t, allParts, "rbac.create=false") {
		switch kind := o.GetObjectKind().GroupVersionKind().Kind; {
		case kind == "ServiceAccount":
			accounts++
		case strings.Contains(kind, "Role"):
			t.Errorf("%s %s was created", kind, metadataOf(t, o).GetName())
		}
	}
	if accounts != 4 {
		t.Errorf("%d accounts were created; want 4", accounts)
	}
}

// YAML has large numbers as floating ones, also in what Helm renders.
func TestLargeSocketGroup(t *testing.T) {
	file := filepath.Join(t.TempDir(), "values.yaml")
	check.Must(t, os.WriteFile(file, []byte(largeGroups), 0o600))
	all, err := template(t, ourChart, newest, values.Options{ValueFiles: []string{file}})
	check.Must(t, err)
	for _, name := range []string{"delegated-ipam", "delegated-ipam-bridge"} {
		pod := named[*appsv1.DaemonSet](t, all, name).Spec.Template.Spec
		if c := pod.SecurityContext; c == nil || !slices.Equal(c.SupplementalGroups, []int64{1000600000}) {
			t.Errorf("%s is not a member of the socket's group: %v", name, c)
		}
	}
}
