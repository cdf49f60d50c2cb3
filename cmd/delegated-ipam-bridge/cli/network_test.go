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
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// runNetwork runs the command network with a component that ends immediately, and returns its options.
func runNetwork(t *testing.T, args ...string) (got options.Network, o outcome) {
	t.Helper()
	d := dependencies{
		version: "v1", env: map[string]string{"K8S_NODE_NAME": "worker"},
		serveNetwork: func(_ context.Context, o options.Network, _ logrus.FieldLogger) error {
			got = o
			return errors.New("ended")
		},
	}
	var out, errs strings.Builder
	code := cmdline.Execute(t.Context(), d.command(), append([]string{"network"}, args...), &out, &errs)
	return got, outcome{code, out.String(), errs.String()}
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
			got, o := runNetwork(t, tt.args...)
			o.wants(t, cmdline.ExitFailed, []string{"Error: ended"})
			if got != tt.want {
				t.Errorf("got %+v; want %+v", got, tt.want)
			}
		})
	}
	for _, arg := range []string{"--template=relative", "--output=relative.conflist", "--output=/x.json", "--node-name=", "--metrics-address=here", "--log-level=loud", "argument"} {
		t.Run(arg, func(t *testing.T) {
			name, _, _ := strings.Cut(arg, "=")
			_, o := runNetwork(t, arg)
			o.wants(t, cmdline.ExitUsage, []string{name, "expected"})
		})
	}
}

// An uninstall needs neither an API server nor a template.
func TestNetworkRemove(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pods.conflist")
	check.Must(t, os.WriteFile(file, []byte("{}"), 0o644))
	for range 2 {
		o := runLine(t, []string{"K8S_NODE_NAME=worker"}, "network", "--remove", "--output="+file)
		if o.code != cmdline.ExitOK {
			t.Errorf("got %+v", o)
		}
		if _, err := os.Stat(file); !os.IsNotExist(err) {
			t.Errorf("the file: %v", err)
		}
	}
}
