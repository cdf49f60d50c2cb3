package deploy

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/cli/values"
	corev1 "k8s.io/api/core/v1"

	"github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// elsewhere has the options of each program that are not in its options of the chart: other values or
// mounts set them, or they are not for a pod.
var elsewhere = map[string][]string{
	"daemon":  {"cni-bin-dir", "cni-conf-dir", "config-dir", "max-plugin-processes", "node-name", "pod-name", "socket-path", "state-dir"},
	"bridge":  {"host", "kubeconfig", "metrics-address", "node-name"},
	"network": {"kubeconfig", "metrics-address", "node-name", "output", "remove", "single-node", "template"},
	"reclaim": {"config-map", "file", "forget", "kubeconfig", "namespace"},
}

// Each option of a program can be set, and no other; a value that the program refuses is refused before
// the release is installed.
func TestOptionsOfChart(t *testing.T) {
	_, serve := options.NewDaemon(nil)
	_, bridge := options.NewBridge(nil)
	_, network := options.NewNetwork(nil)
	_, lostNodes := options.NewLostNodes()
	for program, flags := range map[string]*pflag.FlagSet{"daemon": serve.Flags(), "bridge": bridge, "network": network, "reclaim": lostNodes} {
		accepts := func(name string, value any) error {
			text, err := json.Marshal(map[string]any{program: map[string]any{"options": map[string]any{name: value}}})
			check.Must(t, err)
			file := filepath.Join(t.TempDir(), "values.json")
			check.Must(t, os.WriteFile(file, text, 0o600))
			_, err = template(t, ourChart, newest, values.Options{ValueFiles: []string{file}})
			return err
		}
		flags.VisitAll(func(f *pflag.Flag) {
			good, bad := samples(f)
			if slices.Contains(elsewhere[program], f.Name) {
				good, bad = nil, append(bad, good...)
			}
			for _, value := range good {
				if err := accepts(f.Name, value); err != nil {
					t.Errorf("%s: %s: %#v: %v", program, f.Name, value, err)
				}
			}
			for _, value := range bad {
				if err := accepts(f.Name, value); err == nil {
					t.Errorf("%s: %s: %#v is accepted", program, f.Name, value)
				}
			}
		})
		if accepts("unknown", "x") == nil {
			t.Errorf("%s: an unknown option is accepted", program)
		}
	}
}

// samples returns values of an option that the chart must accept, and some that it must refuse.
func samples(f *pflag.Flag) (good, bad []any) {
	switch kind := f.Value.Type(); {
	case f.Name == "socket-group":
		return []any{77, "77", 1000600000}, []any{"cilium", 0}
	case f.Name == "max-allocate":
		defaults, _ := options.NewBridge(nil)
		return []any{0, "0", defaults.MinAllocate}, []any{-1, "x", 1.5, 2, defaults.MinAllocate - 1}
	case f.Name == "pre-allocate":
		return []any{"auto", 1, "1"}, []any{0, "x", 1.5}
	case f.Name == "pool" && kind == "name":
		return []any{"x"}, []any{"", 1}
	case f.Name == "metrics-address":
		return []any{"", ":9000", "192.0.2.1:9000", "node.example.com:9000", "[::]:65535"}, []any{"x", "9000", "::1:9000", ":65536", "x:", 1}
	case f.Name == "local-router-ipv4":
		return []any{"", "192.0.2.1"}, []any{"x", "192.0.2.1/24", "fd00::1"}
	case f.Name == "local-router-ipv6":
		return []any{"", "fd00::1"}, []any{"x", "fd00::1/64", "192.0.2.1"}
	case f.Name == "ipv4-range":
		return []any{"", "192.0.2.0/24"}, []any{"x", "192.0.2.0", "fd00::/64"}
	case f.Name == "ipv6-range":
		return []any{"", "fd00::/64"}, []any{"x", "fd00::", "192.0.2.0/24"}
	case slices.Contains([]string{"plugin-timeout", "ipam-expiration", "excess-ip-release-delay", "grace", "max-gap"}, f.Name):
		return []any{"3m", "1h30m", "0.5s"}, []any{"3 minutes", 180, "", "0", "0s", "0h0m"}
	case kind == "bool":
		return []any{true, false, "true", "false"}, []any{"maybe", 7}
	case kind == "count":
		return []any{1, "1"}, []any{-1, "x", 1.5}
	case kind == "duration":
		return []any{"3m", "1h30m", "500ms"}, []any{"3 minutes", 180, ""}
	case kind == "uids", kind == "gids":
		return []any{1000, "1000,1001"}, []any{"cilium", -1}
	case kind == "mode":
		return []any{"0660", "660"}, []any{"rw", "0888", "0000", "0600", "0640"}
	case strings.Contains(kind, "|"):
		for _, choice := range strings.Split(kind, "|") {
			good = append(good, choice)
		}
		return good, []any{"x", 1}
	}
	return []any{"x"}, []any{1, true}
}

// A refused value is one that would stop a program after the installation. The error names the second string;
// a value without one is accepted.
func TestValuesRefused(t *testing.T) {
	const someError = " "
	for set, want := range map[string]string{
		"daemon.optoins.x=1":                 "optoins",
		"daemon.options.state-dir=/x":        "state-dir",
		"daemon.options.socket-group=cilium": "socket-group",
		"group=0":                            "group",
		"hostPaths.run=relative":             "run",
		"daemon.runtimeSocket=unix:///run/x": "runtimeSocket",
		"maxUnavailable=0":                   "maxUnavailable",
		"network.conflist=x":                 "network.enabled: false",
		"imagePullPolicy=Sometimes":          "imagePullPolicy",
		"bridge.image.registry=a/b":          "registry",
		"daemon.options.socket-mode=0600":    "0660",
		"bridge.options.max-allocate=2":      "8 or more",
		"bridge.metricsAddress=[::]:9968":    "network.metricsAddress",
		"podMonitor.enabled=true":            "does not reach",

		// Twice in one object: Helm takes the last one, and the selector of the pods does not match it; kustomize, which
		// Flux runs, refuses the object.
		`commonLabels.app\.kubernetes\.io/part-of=x`:  "commonLabels",
		`podLabels.app\.kubernetes\.io/name=x`:        "podLabels",
		`dashboard.labels.helm\.sh/chart=x`:           "labels",
		`commonLabels.team=x,podLabels.helm\.sh/y=x`:  "",
		`prometheusRule.labels.app\.kubernetes\.io=x`: "",

		"podMonitor.enabled=true,bridge.metricsAddress=0.0.0.0:9966,network.metricsAddress=0.0.0.0:9968": "does not reach",

		"bridge.serviceAccount.create=false":                                         someError,
		"network.serviceAccount.create=false":                                        someError,
		"bridge.enabled=false,bridge.serviceAccount.create=false":                    "",
		"hostPaths.state=/var/lib/delegated-ipam/":                                   someError,
		"apiServer.host=192.0.2.1":                                                   "",
		"apiServer.host=fd00::1,apiServer.port=6443":                                 "",
		"apiServer.host=api.example.com":                                             "",
		"apiServer.host=https://192.0.2.1":                                           someError,
		"apiServer.host=192.0.2.1:6443":                                              someError,
		"apiServer.host=api.example.com/x":                                           someError,
		"apiServer.port=6443":                                                        someError,
		"apiServer.port=,apiServer.host=":                                            "",
		"bridge.metricsAddress=0.0.0.0:9000":                                         "",
		"bridge.metricsAddress=[::]:9000":                                            "",
		"bridge.metricsAddress=:9000":                                                someError,
		"bridge.metricsAddress=":                                                     someError,
		"network.metricsAddress=node.example.com:9000":                               someError,
		"apiServer.host=192.0.2.1,apiServer.port=65535":                              "",
		"apiServer.host=192.0.2.1,apiServer.port=65536":                              someError,
		"bridge.metricsAddress=0.0.0.0:65535":                                        "",
		"bridge.metricsAddress=0.0.0.0:65536":                                        someError,
		"network.metricsAddress=[::]:99999":                                          someError,
		"bridge.metricsAddress=0.0.0.0:9968":                                         someError,
		"bridge.metricsAddress=0.0.0.0:9968,network.enabled=false":                   "",
		"bridge.metricsAddress=127.0.0.1:9968,network.metricsAddress=127.0.0.1:9966": "",
		"daemon.options.metrics-address=:9968":                                       someError,
		"daemon.options.metrics-address=:9966":                                       someError,
		"daemon.options.metrics-address=:9967":                                       "",
		"daemon.options.metrics-address=:9966,daemon.enabled=false":                  "",
		"daemon.options.socket-mode=0600,bridge.enabled=false":                       "",
		"bridge.options.max-allocate=4,bridge.options.min-allocate=5":                someError,
		"bridge.options.max-allocate=2,bridge.options.min-allocate=0":                someError,
		"bridge.options.max-allocate=3,bridge.options.min-allocate=0":                "",
	} {
		_, err := template(t, ourChart, newest, values.Options{Values: []string{set}})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v; want %q", set, err, want)
		}
	}
}

// A label of one object takes precedence over that of all objects, which may have the same name.
func TestOwnLabels(t *testing.T) {
	own := map[string]string{"podMonitor": "pod-monitor", "prometheusRule": "prometheus-rule", "dashboard": "dashboard"}
	set := []string{"commonLabels.release=all", "bridge.metricsAddress=0.0.0.0:9966", "network.metricsAddress=0.0.0.0:9968", "daemon.options.metrics-address=0.0.0.0:9967"}
	for value := range own {
		set = append(set, value+".enabled=true", value+".labels.release=own")
	}
	files, err := templateFiles(t, ourChart, newest, values.Options{Values: set})
	check.Must(t, err)
	for value, file := range own {
		text := files["delegated-ipam/templates/"+file+".yaml"]
		if !strings.Contains(text, "release: own") || strings.Contains(text, "release: all") {
			t.Errorf("%s.labels: want the own label alone in %s:\n%.700s", value, file, text)
		}
	}
	m := named[*corev1.ConfigMap](t, everything(t, "dashboard.enabled=true", "dashboard.labels=null"), "delegated-ipam-dashboard")
	if _, is := m.Labels["grafana_dashboard"]; is {
		t.Errorf("without labels the dashboard has %v", m.Labels)
	}
}

// The alerts name sections of the given page. They are off, because most clusters do not know the kind.
func TestPrometheusRule(t *testing.T) {
	alert := regexp.MustCompile(`(?s)- alert: (\w+)\n.*?runbook_url: (\S+)\n`)
	for set, want := range map[string]string{
		"":                            "",
		"prometheusRule.enabled=true": "https://github.com/delegated-ipam/delegated-ipam/blob/main/docs/troubleshooting.md",
		"prometheusRule.enabled=true,prometheusRule.runbookURL=https://example.com/runbooks": "https://example.com/runbooks",
	} {
		files, err := templateFiles(t, ourChart, newest, values.Options{Values: []string{set}})
		check.Must(t, err)
		alerts := alert.FindAllStringSubmatch(files["delegated-ipam/templates/prometheus-rule.yaml"]+"\n", -1)
		if (len(alerts) > 0) != (want != "") {
			t.Errorf("with %q there are %d alerts", set, len(alerts))
		}
		for _, m := range alerts {
			if m[2] != want+"#"+strings.ToLower(m[1]) {
				t.Errorf("with %q the runbook of %s is %s; want a section of %s", set, m[1], m[2], want)
			}
		}
	}
	c, err := loader.Load(ourChart)
	check.Must(t, err)
	c.Metadata.AppVersion = "v1.2.3"
	files, err := renderFiles(t, c, newest, values.Options{Values: []string{"prometheusRule.enabled=true"}})
	check.Must(t, err)
	if want := "https://github.com/delegated-ipam/delegated-ipam/blob/v1.2.3/docs/troubleshooting.md#"; !strings.Contains(files["delegated-ipam/templates/prometheus-rule.yaml"], want) {
		t.Errorf("the rule of a release lacks %s", want)
	}
	if _, err := templateFiles(t, ourChart, newest, values.Options{Values: []string{"prometheusRule.runbookURL=runbooks.html"}}); err == nil {
		t.Error("a relative URL of the runbooks is accepted")
	}
}
