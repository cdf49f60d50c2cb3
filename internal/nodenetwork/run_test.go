package nodenetwork

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/bridge/apiserver"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestRun(t *testing.T) {
	dir := t.TempDir()
	api := apiserver.Start(t)
	api.Add("nodes", apiserver.Object{
		"apiVersion": "v1", "kind": "Node", "metadata": apiserver.Object{"name": "worker", "uid": "1"},
		"spec": apiserver.Object{"podCIDRs": []string{"10.244.1.0/24"}},
	})
	o := options.Network{
		NodeName: "worker", Template: filepath.Join(dir, "template"), Output: filepath.Join(dir, "pods.conflist"), MetricsAddress: check.FreeAddress(t),
		Kubeconfig: api.Kubeconfig(t),
	}
	check.Must(t, os.WriteFile(o.Template, []byte(ranges), 0o644))
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, o, logging.Discard()) }()
	harness.Eventually(t, "ready", func() error {
		if got := get(t, o, "/readyz"); got != "200 ok\n" {
			return errors.New(got)
		}
		return nil
	})
	if content, err := os.ReadFile(o.Output); err != nil || !strings.Contains(string(content), "10.244.1.0/24") {
		t.Errorf("the file is %s, %v; want the range of the Node", content, err)
	}
	for path, want := range map[string]string{"/healthz": "200 ok\n", "/metrics": prefix + "rendered 1\n"} {
		if got := get(t, o, path); !strings.Contains(got, want) {
			t.Errorf("%s: got %s; want %q", path, got, want)
		}
	}
	end()
	if err := <-ended; err != nil {
		t.Errorf("ended with %v", err)
	}
	if _, err := os.Stat(o.Output); err != nil {
		t.Errorf("the end has removed the file: %v", err)
	}
}

// get returns status code and body of a response; the error text if there is none.
func get(t *testing.T, o options.Network, path string) string {
	t.Helper()
	resp, err := http.Get("http://" + o.MetricsAddress + path)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	check.Must(t, err)
	return fmt.Sprintf("%d %s", resp.StatusCode, body)
}

func TestRunRefused(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	good := options.Network{NodeName: "worker", Template: "/t", Output: "/o.conflist", Kubeconfig: apiserver.Start(t).Kubeconfig(t)}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	check.Must(t, err)
	defer taken.Close()
	for name, c := range map[string]struct {
		set  func(o *options.Network)
		want string
	}{
		"no name":        {func(o *options.Network) { o.NodeName = "" }, "--node-name"},
		"no API server":  {func(o *options.Network) { o.Kubeconfig = "" }, "--kubeconfig"},
		"address in use": {func(o *options.Network) { o.MetricsAddress = taken.Addr().String() }, "--metrics-address"},
	} {
		t.Run(name, func(t *testing.T) {
			o := good
			c.set(&o)
			if err := Run(t.Context(), o, logging.Discard()); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("ended with %v; want an error that names %s", err, c.want)
			}
		})
	}
}
