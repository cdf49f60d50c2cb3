package deploy

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

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
			_, err = templateFiles(t, ourChart, newest, given(t, string(text)))
			return err
		}
		flags.VisitAll(func(f *pflag.Flag) {
			good, bad := samples(f)
			if slices.Contains(elsewhere[program], f.Name) {
				good, bad = nil, append(bad, good...)
			}
			for want, samples := range map[bool][]any{true: good, false: bad} {
				for _, value := range samples {
					if err := accepts(f.Name, value); (err == nil) != want {
						t.Errorf("%s: %s: %#v: error %v; want it accepted: %t", program, f.Name, value, err, want)
					}
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

// refused has values that would stop a program after the installation, and a part of the error.
var refused = map[string]string{
	"daemon.optoins.x=1":                 "optoins",
	"daemon.options.state-dir=/x":        "state-dir",
	"daemon.options.socket-group=cilium": "socket-group",
	"group=0":                            "group",
	"hostPaths.run=relative":             "run",
	"hostPaths.state=/var/lib/x/":        "state",
	"daemon.runtimeSocket=unix:///run/x": "runtimeSocket",
	"maxUnavailable=0":                   "maxUnavailable",
	"network.conflist=x":                 "network.enabled: false",
	"imagePullPolicy=Sometimes":          "imagePullPolicy",
	"bridge.image.registry=a/b":          "registry",
	"daemon.options.socket-mode=0600":    "0660",
	"podMonitor.enabled=true":            "does not reach",
	"prometheusRule.runbookURL=x.html":   "runbookURL",

	"podMonitor.enabled=true,bridge.metricsAddress=0.0.0.0:9966,network.metricsAddress=0.0.0.0:9968": "does not reach",

	// Twice in one object: Helm takes the last one, and the selector of the pods does not match it; kustomize, which
	// Flux runs, refuses the object.
	`commonLabels.app\.kubernetes\.io/part-of=x`: "commonLabels",
	`podLabels.app\.kubernetes\.io/name=x`:       "podLabels",
	`dashboard.labels.helm\.sh/chart=x`:          "labels",

	"bridge.serviceAccount.create=false": "bridge.serviceAccount", "network.serviceAccount.create=false": "network.serviceAccount",
	"apiServer.host=https://192.0.2.1": "host", "apiServer.host=192.0.2.1:6443": "host", "apiServer.host=api.example.com/x": "host",
	"apiServer.port=6443": "apiServer", "apiServer.host=192.0.2.1,apiServer.port=65536": "port",
	"bridge.metricsAddress=:9000": "metricsAddress", "bridge.metricsAddress=": "metricsAddress", "bridge.metricsAddress=0.0.0.0:65536": "metricsAddress",
	"network.metricsAddress=node.example.com:9000": "metricsAddress", "network.metricsAddress=[::]:99999": "metricsAddress",
	"bridge.metricsAddress=[::]:9968": "network.metricsAddress", "bridge.metricsAddress=0.0.0.0:9968": "network.metricsAddress",
	"daemon.options.metrics-address=:9968": "metrics-address", "daemon.options.metrics-address=:9966": "metrics-address",
	"bridge.options.max-allocate=2": "8 or more", "bridge.options.max-allocate=4,bridge.options.min-allocate=5": "5 or more",
	"bridge.options.max-allocate=2,bridge.options.min-allocate=0": "max-allocate",

	onEKS: noCIDRs, onEKS + "bridge.enabled=false": noCIDRs, onEKS + "network.template=x ${podCIDRs[0]}": noCIDRs,
}

var accepted = []string{
	`commonLabels.team=x,podLabels.helm\.sh/y=x`, `prometheusRule.labels.app\.kubernetes\.io=x`, "bridge.enabled=false,bridge.serviceAccount.create=false",
	"apiServer.host=192.0.2.1", "apiServer.host=fd00::1,apiServer.port=6443", "apiServer.host=api.example.com", "apiServer.port=,apiServer.host=",
	"apiServer.host=192.0.2.1,apiServer.port=65535", "bridge.metricsAddress=0.0.0.0:9000", "bridge.metricsAddress=[::]:9000", "bridge.metricsAddress=0.0.0.0:65535",
	"bridge.metricsAddress=0.0.0.0:9968,network.enabled=false", "bridge.metricsAddress=127.0.0.1:9968,network.metricsAddress=127.0.0.1:9966",
	"daemon.options.metrics-address=:9967", "daemon.options.metrics-address=:9966,daemon.enabled=false", "daemon.options.socket-mode=0600,bridge.enabled=false",
	"bridge.options.max-allocate=3,bridge.options.min-allocate=0", onEKS + "network.template=x ${annotations[example.com/range]}", onEKS + "network.enabled=false",
}

// On EKS nodes have no podCIDRs: what needs them is refused before the installation.
const onEKS, noCIDRs = "EKS ", "no podCIDRs"

func TestValuesRefused(t *testing.T) {
	accepts := func(set string) error {
		version := newest
		if other, is := strings.CutPrefix(set, onEKS); is {
			version, set = "v1.33.5-eks-113cf36", other
		}
		_, err := templateFiles(t, ourChart, version, given(t, set))
		return err
	}
	for set, want := range refused {
		if err := accepts(set); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v; want %q", set, err, want)
		}
	}
	for _, set := range accepted {
		if err := accepts(set); err != nil {
			t.Errorf("%s: %v", set, err)
		}
	}
}
