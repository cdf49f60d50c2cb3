package cli

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
)

// runNetwork runs the command network with a component that ends immediately, and returns its options.
func runNetwork(t *testing.T, args ...string) (code int, got options.Network, stderr string) {
	t.Helper()
	d := dependencies{
		version: "v1", env: map[string]string{"K8S_NODE_NAME": "worker"},
		serveNetwork: func(_ context.Context, o options.Network, _ logrus.FieldLogger) error {
			got = o
			return errors.New("ended")
		},
	}
	var out, errs strings.Builder
	code = cmdline.Execute(t.Context(), d.command(), append([]string{"network"}, args...), &out, &errs)
	return code, got, errs.String()
}

func TestNetworkOptions(t *testing.T) {
	base := options.Network{
		NodeName: "worker", Template: "/etc/delegated-ipam/template/pods.conflist", Output: "/run/delegated-ipam/pods.conflist",
		Log: options.Log{LogLevel: "info", LogFormat: "text"},
	}
	all := base
	all.Kubeconfig, all.Template, all.Output, all.MetricsAddress = "/k", "/t", "/o.conflist", ":9968"
	all.SingleNode, all.Remove = true, true
	for name, tt := range map[string]struct {
		args []string
		want options.Network
	}{
		"defaults": {nil, base},
		"all":      {[]string{"--kubeconfig=/k", "--template=/t", "--output=/o.conflist", "--metrics-address=:9968", "--single-node", "--remove"}, all},
	} {
		t.Run(name, func(t *testing.T) {
			if code, got, stderr := runNetwork(t, tt.args...); code != cmdline.ExitFailed || got != tt.want || !strings.Contains(stderr, "Error: ended") {
				t.Errorf("exit code %d with %+v; want %+v\n%s", code, got, tt.want, stderr)
			}
		})
	}
	for _, arg := range []string{"--template=relative", "--output=relative.conflist", "--output=/x.json", "--node-name=", "--metrics-address=here", "--log-level=loud", "argument"} {
		t.Run(arg, func(t *testing.T) {
			name, _, _ := strings.Cut(arg, "=")
			if code, _, stderr := runNetwork(t, arg); code != cmdline.ExitUsage || !strings.Contains(stderr, name) || !strings.Contains(stderr, "expected") {
				t.Errorf("exit code %d, printed %q; want %s and what is expected", code, stderr, name)
			}
		})
	}
}

// An uninstall needs neither an API server nor a template.
func TestNetworkRemove(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pods.conflist")
	if err := os.WriteFile(file, []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		var stdout, stderr strings.Builder
		args := []string{"network", "--remove", "--output=" + file}
		if code := Run(t.Context(), args, []string{"K8S_NODE_NAME=worker"}, &stdout, &stderr, "v1"); code != cmdline.ExitOK {
			t.Errorf("exit code %d: %s", code, &stderr)
		}
		if _, err := os.Stat(file); !os.IsNotExist(err) {
			t.Errorf("the file: %v", err)
		}
	}
}
