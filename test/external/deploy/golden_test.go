package deploy

import (
	"cmp"
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
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/diff"
	"sigs.k8s.io/yaml"

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

	// The bridge's own owners and group stay, and it may connect to a socket of another group. YAML has large numbers as
	// floating ones, also in what Helm renders.
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

	// Without the creation of rights there are still accounts.
	allParts + " + rbac.create=false",
	"commonLabels.team=net,podLabels.scrape=yes",
	"daemon.enabled=false", "daemon.enabled=false,bridge.enabled=false", "deleteHook.enabled=false",

	// The values of a part hold for its pods alone, beside those for every part.
	allParts + " + " + common,
	allParts + "," + common + " + " + ofPart("daemon"),
	allParts + "," + common + " + " + ofPart("bridge"),
	allParts + "," + common + " + " + ofPart("network"),
	allParts + "," + common + " + " + ofPart("audit"),
	allParts + "," + common + " + " + ofPart("reclaim"),
	common + " + " + strings.TrimSuffix(ofPart("deleteHook"), ",deleteHook.extraArgs[0]=--log-level=debug"),

	// The audit compares addresses with podCIDRs where the template has them.
	"audit.enabled=true + network.template=x ${podCIDRs[0]}", "audit.enabled=true + network.template=x ${annotations[example.com/range]}",
	// A label of one object takes precedence over that of all objects.
	allParts + "," + monitors + ",prometheusRule.enabled=true,commonLabels.release=all + podMonitor.labels.release=own,prometheusRule.labels.release=own,dashboard.labels.release=own",
	"dashboard.enabled=true + dashboard.labels=null",
	"prometheusRule.enabled=true + prometheusRule.runbookURL=https://example.com/runbooks",

	"@chained.yaml",
	"@ways/azure-ipam.yaml", "@ways/calico-ipam.yaml", "@ways/crio.yaml", "@ways/k3s.yaml", "@ways/kind.yaml", "@ways/rke2.yaml", "@ways/whereabouts.yaml",
}

const (
	monitors = "podMonitor.enabled=true,podMonitor.labels.release=prometheus,bridge.metricsAddress=0.0.0.0:9000," +
		"network.metricsAddress=[::]:9968,daemon.options.metrics-address=192.0.2.1:9967"
	noParts = "daemon.enabled=false,bridge.enabled=false,network.enabled=false"

	largeGroups = "{daemon: {options: {enable-ipv6: true, allow-gids: 1000600000, socket-group: 1000600000}}}"

	digest = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	common = "imagePullSecrets[0].name=common,nodeSelector.zone=z,podAnnotations.all=yes"
)

// ofPart returns values of the pods of one part.
func ofPart(part string) string {
	return strings.ReplaceAll("PART.imagePullSecrets[0].name=own,PART.nodeSelector.pool=a,PART.podAnnotations.part=yes,PART.tolerations[0].key=own,PART.extraArgs[0]=--log-level=debug", "PART", part)
}

// The chart with every part. It shows what the manifests have, too (TestKustomizations).
func TestChart(t *testing.T) {
	const parts = "audit.enabled=true,reclaim.enabled=true,daemon.installCNI=true,daemon.runtimeSocket=" + runtimeSocket
	var got strings.Builder
	files := chartText(t, parts, monitors)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(&got, "# %s\n%s", name, files[name])
	}
	wantGolden(t, "testdata/chart.yaml", got.String())
}

// Values change these lines of the rendered chart, and no others.
func TestValues(t *testing.T) {
	wantDiffs(t, "testdata/values.diff", sets, chartText)
}

// Files of values of deploy/cilium change these lines of Cilium's chart, and no others.
func TestCilium(t *testing.T) {
	wantDiffs(t, "testdata/cilium.diff", []string{
		"values.yaml", "values.yaml + bridge.yaml", "values.yaml bridge.yaml + whereabouts.yaml", "values.yaml + agent/values.yaml",
		"pods.yaml", "chained.yaml", "../kind/cilium.yaml",
	}, func(t *testing.T, files ...string) map[string]string {
		t.Helper()
		return ciliumText(t, newest, strings.Fields(strings.Join(files, " "))...)
	})
}

// wantDiffs wants the differences that values make to the texts of a rendering. Those before " + " are on both sides.
func wantDiffs(t *testing.T, golden string, sets []string, render func(*testing.T, ...string) map[string]string) {
	t.Helper()
	var got strings.Builder
	for _, set := range sets {
		base, with, found := strings.Cut(set, " + ")
		if !found {
			base, with = "", set
		}
		writeDiff(t, &got, set, render(t, base), render(t, base, with))
	}
	wantGolden(t, golden, got.String())
}

// A kustomization, with lines over it, differs in these lines from what the chart renders.
func TestKustomizations(t *testing.T) {
	const noHook, daemonOnly = "deleteHook.enabled=false", "bridge.enabled=false,network.enabled=false"
	_, after, _ := strings.Cut(read(t, "../../../docs/operate/bridge.md"), "```yaml\npatches:")
	withoutPods, _, _ := strings.Cut(after, "```")
	runtimePatch := strings.ReplaceAll(read(t, "../../../deploy/kubernetes/overlays/pods/runtime.yaml"), "\n", "\n    ")
	var got strings.Builder
	for _, k := range []struct {
		name, lines string
		values      []string
	}{
		{"daemon", "", []string{noHook, daemonOnly}},
		{"with-bridge", "", []string{noHook}},
		{"with-bridge", "namespace: cni", []string{noHook, "namespaceOverride=cni"}},
		{"with-bridge", "patches:" + withoutPods, []string{noHook, "bridge.options.watch-pods=false"}},
		{"pods", "", []string{noHook, daemonOnly, "daemon.installCNI=true"}},
		{"pods", "patches:\n- patch: |\n    " + runtimePatch, []string{noHook, daemonOnly, "daemon.installCNI=true", "daemon.runtimeSocket=" + runtimeSocket}},
		{"reclaim", "", []string{noHook, "@ways/whereabouts.yaml", "reclaim.enabled=true"}},
		{"audit", "", []string{noHook, noParts, "audit.enabled=true"}},
		{"uninstall", "", nil},
	} {
		title := strings.TrimSuffix(k.name+" + "+strings.SplitN(k.lines, "\n", 2)[0], " + ")
		files := chartText(t, k.values...)
		maps.DeleteFunc(files, func(name, _ string) bool { return strings.HasPrefix(name, "tests/") })
		kustomized := overlay(t, k.name, k.lines)
		for _, o := range kustomized {
			// The generated ones: a change must replace the pods.
			if c, is := o.(*corev1.ConfigMap); is && len(c.Data) > 0 && !suffix.MatchString(c.Name) {
				t.Errorf("%s: the name %s has no hash", title, c.Name)
			}
		}
		writeDiff(t, &got, title, objectTexts(t, decode(t, files)), objectTexts(t, kustomized))
	}
	wantGolden(t, "testdata/kustomizations.diff", got.String())
}

// onlyHelm matches what only Helm's objects have.
var onlyHelm = regexp.MustCompile(`(?m)^ *(helm\.sh/chart|app\.kubernetes\.io/(managed-by|version)): .*\n|^ *annotations:\n *checksum/.*\n`)

// objectTexts returns objects as YAML, by kind and name, without what makes a changed ConfigMap replace the pods: a
// checksum in the chart, a hash in the names of a kustomization.
func objectTexts(t *testing.T, all []runtime.Object) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, o := range all {
		if pod, has := podOf(o); has { // the slices are those of the object
			slices.SortFunc(pod.Spec.Containers, func(a, b corev1.Container) int { return cmp.Compare(a.Name, b.Name) })
			slices.SortFunc(pod.Spec.Volumes, func(a, b corev1.Volume) int { return cmp.Compare(a.Name, b.Name) })
		}
		if c, is := o.(*corev1.ConfigMap); is {
			c.Labels = nil
		}
		text, err := yaml.Marshal(o)
		check.Must(t, err)
		name := o.GetObjectKind().GroupVersionKind().Kind + " " + suffix.ReplaceAllString(metadataOf(t, o).GetName(), "")
		texts[name] = suffix.ReplaceAllString(onlyHelm.ReplaceAllString(string(text), ""), "")
	}
	return texts
}

func wantGolden(t *testing.T, file, got string) {
	t.Helper()
	if os.Getenv("UPDATE_GOLDEN") != "" {
		check.Must(t, os.WriteFile(file, []byte(got), 0o644))
	}
	if want := read(t, file); got != want {
		t.Errorf("not the content of %s (UPDATE_GOLDEN=1 go test ./... writes it):\n%s", file, diff.Diff(want, got))
	}
}

// writeDiff writes the lines of each text that differ.
func writeDiff(t *testing.T, to *strings.Builder, title string, before, after map[string]string) {
	t.Helper()
	to.WriteString("=== " + title + "\n")
	both := maps.Clone(before)
	maps.Copy(both, after)
	for _, name := range slices.Sorted(maps.Keys(both)) {
		if before[name] != after[name] {
			to.WriteString("# " + name + lineDiff(t, before[name], after[name]))
		}
	}
}

var (
	comment  = regexp.MustCompile(`(?m)^ *#.*\n`)
	checksum = regexp.MustCompile(`(checksum(/\w+)?"?: ).*`)
)

// chartText returns the text of each file of our chart, with values as in sets.
func chartText(t *testing.T, sets ...string) map[string]string {
	t.Helper()
	files, err := templateFiles(t, ourChart, newest, given(t, sets...))
	check.Must(t, err)
	return specific(files)
}

// given returns values as in sets.
func given(t *testing.T, sets ...string) (given values.Options) {
	t.Helper()
	for _, set := range sets {
		switch file, isFile := strings.CutPrefix(set, "@"); {
		case isFile:
			given.ValueFiles = append(given.ValueFiles, filepath.Join(ourChart, file))
		case strings.HasPrefix(set, "{"):
			file := filepath.Join(t.TempDir(), "values.yaml")
			check.Must(t, os.WriteFile(file, []byte(set), 0o600))
			given.ValueFiles = append(given.ValueFiles, file)
		default:
			given.Values = append(given.Values, set)
		}
	}
	return given
}

// specific returns the texts of a chart's files without comments and checksums.
func specific(files map[string]string) map[string]string {
	text := map[string]string{}
	for name, content := range files {
		content = strings.TrimSpace(checksum.ReplaceAllString(comment.ReplaceAllString(content+"\n", ""), "${1}CHECKSUM"))
		if content != "" && path.Base(name) != "NOTES.txt" {
			_, name, _ = strings.Cut(name, "/templates/")
			text[name] = content + "\n"
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
