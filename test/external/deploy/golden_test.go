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

// The chart with every part. It shows what the manifests have, too (TestOneSource).
func TestChart(t *testing.T) {
	const parts = "audit.enabled=true,reclaim.enabled=true,daemon.installCNI=true,daemon.runtimeSocket=/run/containerd/containerd.sock"
	const monitors = "podMonitor.enabled=true,podMonitor.labels.release=prometheus,bridge.metricsAddress=0.0.0.0:9000," +
		"network.metricsAddress=[::]:9968,daemon.options.metrics-address=192.0.2.1:9967"
	var got strings.Builder
	files := chartText(t, parts, monitors)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(&got, "# %s\n%s", name, files[name])
	}
	wantGolden(t, "testdata/chart.yaml", got.String())
}

// Values change these lines of the rendered chart, and no others.
func TestValues(t *testing.T) {
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
	wantGolden(t, "testdata/values.diff", got.String())
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
