package command

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/klog/v2"

	"github.com/delegated-ipam/delegated-ipam/pkg/bridge"
	"github.com/delegated-ipam/delegated-ipam/pkg/bridge/planner"
	"github.com/delegated-ipam/delegated-ipam/pkg/option"
)

// run runs a command line whose bridge ends at once, and returns what it was told.
func run(t *testing.T, env map[string]string, args ...string) (code int, got bridge.Config, stderr string) {
	t.Helper()
	p := program{version: "v1", env: env, serve: func(_ context.Context, c bridge.Config, _ logrus.FieldLogger) error {
		got = c
		klog.Warning("something of the client")
		return errors.New("ended")
	}}
	var out, errs strings.Builder
	code = option.Execute(t.Context(), p.command(), args, &out, &errs)
	return code, got, errs.String()
}

func TestTheOptionsReachTheBridge(t *testing.T) {
	base := bridge.Config{
		NodeName: "worker", Socket: "/var/run/cilium/delegated-ipam.sock", Pool: "default",
		Settings: planner.Settings{MinAllocate: 8, PreAllocate: 8, ReleaseExcess: true}, ReleaseDelay: 3 * time.Minute,
	}
	tests := map[string]struct {
		env  map[string]string
		args []string
		want func(c *bridge.Config)
	}{
		"by default":                {nil, []string{"--node-name=worker"}, func(*bridge.Config) {}},
		"from the environment":      {map[string]string{"K8S_NODE_NAME": "worker", "CILIUM_SOCK": "/s"}, nil, func(c *bridge.Config) { c.Socket = "/s" }},
		"a flag before environment": {map[string]string{"K8S_NODE_NAME": "x"}, []string{"--node-name=worker", "-H", "unix:///t"}, func(c *bridge.Config) { c.Socket = "/t" }},
		"all": {nil, []string{
			"--node-name=worker", "--kubeconfig=/k", "--pool=blue", "--min-allocate=5", "--pre-allocate=4", "--max-allocate=30", "--max-above-watermark=2",
			"--release-excess=false", "--excess-ip-release-delay=60s", "--metrics-address=:9966",
		}, func(c *bridge.Config) {
			c.Kubeconfig, c.Pool, c.ReleaseDelay, c.MetricsAddress = "/k", "blue", time.Minute, ":9966"
			c.Settings = planner.Settings{MinAllocate: 5, PreAllocate: 4, MaxAllocate: 30, MaxAboveWatermark: 2}
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			want := base
			tt.want(&want)
			code, got, stderr := run(t, tt.env, tt.args...)
			if code != option.Failed || !reflect.DeepEqual(got, want) {
				t.Errorf("ended with %d and %+v; want %+v", code, got, want)
			}
			for _, line := range []string{"something of the client", "Error: ended"} {
				if !strings.Contains(stderr, line) {
					t.Errorf("printed %q; want it to have %q", stderr, line)
				}
			}
		})
	}
}

func TestBadValuesAreRefusedByName(t *testing.T) {
	for _, arg := range []string{
		"--min-allocate=-1", "--min-allocate=x", "--pre-allocate=0", "--max-allocate=2", "--max-above-watermark=-1", "--release-excess=perhaps",
		"--excess-ip-release-delay=180", "--excess-ip-release-delay=0s", "--metrics-address=here", "--host=http://x", "--pool=", "--node-name=", "--log-level=loud", "--log-format=xml", "argument",
	} {
		t.Run(arg, func(t *testing.T) {
			code, _, stderr := run(t, map[string]string{"K8S_NODE_NAME": "worker"}, arg)
			name, _, _ := strings.Cut(arg, "=")
			if code != option.Usage || !strings.Contains(stderr, name) || !strings.Contains(stderr, "expected") {
				t.Errorf("ended with %d and printed %q; want it to name %s and say what is expected", code, stderr, name)
			}
		})
	}
}

func TestRunTakesArgumentsEnvironmentAndStreams(t *testing.T) {
	var stdout, stderr strings.Builder
	if code := Run(t.Context(), []string{"--version"}, nil, &stdout, &stderr, "v9"); code != option.Done || !strings.Contains(stdout.String(), "v9") {
		t.Errorf("--version ended with %d and printed %q", code, &stdout)
	}
	if code := Run(t.Context(), []string{"--kubeconfig=/none"}, []string{"K8S_NODE_NAME=worker"}, &stdout, &stderr, ""); code != option.Failed || !strings.Contains(stderr.String(), "/none") {
		t.Errorf("without a kubeconfig it ended with %d and printed %q", code, &stderr)
	}
}
