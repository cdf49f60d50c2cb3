package cli

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/klog/v2"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
)

// run runs a command line with a bridge that ends immediately, and returns the configuration of
// the bridge.
func run(t *testing.T, env map[string]string, args ...string) (got options.Bridge, o outcome) {
	t.Helper()
	d := dependencies{version: "v1", env: env, serve: func(_ context.Context, c options.Bridge, _ logrus.FieldLogger) error {
		got = c
		klog.Warning("something of the client")
		return errors.New("ended")
	}}
	var out, errs strings.Builder
	code := cmdline.Execute(t.Context(), d.command(), args, &out, &errs)
	return got, outcome{code, out.String(), errs.String()}
}

func TestOptions(t *testing.T) {
	base := options.Bridge{
		NodeName: "worker", Host: "unix:///var/run/delegated-ipam/ipam.sock", Pool: "default",
		MinAllocate: 8, MaxAboveWatermark: 8, ReleaseExcess: true, ReleaseDelay: 3 * time.Minute, WatchPods: true,
		Log: options.Log{LogLevel: "info", LogFormat: "text"},
	}
	for name, tt := range map[string]struct {
		env  map[string]string
		args []string
		want func(o *options.Bridge)
	}{
		"defaults":              {nil, []string{"--node-name=worker"}, func(*options.Bridge) {}},
		"environment":           {map[string]string{"K8S_NODE_NAME": "worker", "CILIUM_SOCK": "/s"}, nil, func(o *options.Bridge) { o.Host = "unix:///s" }},
		"flag over environment": {map[string]string{"K8S_NODE_NAME": "x"}, []string{"--node-name=worker", "-H", "unix:///t"}, func(o *options.Bridge) { o.Host = "unix:///t" }},
		"all": {nil, []string{
			"--node-name=worker", "--kubeconfig=/k", "--pool=blue", "--min-allocate=5", "--pre-allocate=4", "--max-allocate=30", "--max-above-watermark=2",
			"--release-excess=false", "--excess-ip-release-delay=60s", "--metrics-address=:9966", "--watch-pods=false",
		}, func(o *options.Bridge) {
			o.WatchPods = false
			o.Kubeconfig, o.Pool, o.ReleaseDelay, o.MetricsAddress = "/k", "blue", time.Minute, ":9966"
			o.MinAllocate, o.PreAllocate, o.MaxAllocate, o.MaxAboveWatermark, o.ReleaseExcess = 5, 4, 30, 2, false
		}},
	} {
		t.Run(name, func(t *testing.T) {
			want := base
			tt.want(&want)
			got, o := run(t, tt.env, tt.args...)
			o.wants(t, cmdline.ExitFailed, []string{"something of the client", "Error: ended"})
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v; want %+v", got, want)
			}
		})
	}
}

func TestBadValues(t *testing.T) {
	for _, arg := range []string{
		"--min-allocate=-1", "--min-allocate=x", "--pre-allocate=0", "--max-allocate=2", "--max-above-watermark=-1", "--release-excess=perhaps",
		"--excess-ip-release-delay=180", "--excess-ip-release-delay=0s", "--metrics-address=here", "--host=http://x", "--pool=", "--node-name=", "--log-level=loud", "--log-format=xml", "argument",
	} {
		t.Run(arg, func(t *testing.T) {
			_, o := run(t, map[string]string{"K8S_NODE_NAME": "worker"}, arg)
			name, _, _ := strings.Cut(arg, "=")
			o.wants(t, cmdline.ExitUsage, []string{name, "expected"})
		})
	}
}

func TestRun(t *testing.T) {
	runLine(t, nil, "version").wants(t, cmdline.ExitOK, nil, "delegated-ipam-bridge version v1 (go")
	runLine(t, []string{"K8S_NODE_NAME=worker"}, "--kubeconfig=/none").wants(t, cmdline.ExitFailed, []string{"/none"})
}

func TestHelp(t *testing.T) {
	runLine(t, nil, "--help").wants(t, cmdline.ExitOK, nil, "\nUsage:\n  delegated-ipam-bridge\n  delegated-ipam-bridge [command]\n\n",
		"\nRun:\n  network  ", "\nDiagnosis:\n  audit  ", "\nMaintenance:\n  lost-nodes  ")
}
