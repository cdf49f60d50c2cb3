package nodenetwork

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
)

// nodeServer serves one Node, and watches without events.
func nodeServer(t *testing.T, n corev1.Node) (kubeconfig string) {
	t.Helper()
	n.APIVersion, n.Kind = "v1", "Node"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		var body any = n
		switch {
		case r.URL.Path == "/api/v1/nodes" && r.URL.Query().Get("watch") != "":
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		case r.URL.Path == "/api/v1/nodes" && r.URL.Query().Get("fieldSelector") == "metadata.name="+n.Name:
			body = corev1.NodeList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []corev1.Node{n}}
		case r.URL.Path != "/api/v1/nodes/"+n.Name:
			http.Error(w, "unexpected "+r.URL.String(), http.StatusNotFound)
			return
		}
		_ = json.NewEncoder(w).Encode(body) // a client that has left is not a failure of the server
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":%q}}],"contexts":[{"name":"c","context":{"cluster":"c","user":""}}],"current-context":"c"}`, server.URL)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// freePort returns an unused TCP address.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestRun(t *testing.T) {
	dir := t.TempDir()
	o := options.Network{
		NodeName: "worker", Template: filepath.Join(dir, "template"), Output: filepath.Join(dir, "pods.conflist"), MetricsAddress: freePort(t),
		Kubeconfig: nodeServer(t, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker", UID: "1"}, Spec: corev1.NodeSpec{PodCIDRs: []string{"10.244.1.0/24"}}}),
	}
	if err := os.WriteFile(o.Template, []byte(ranges), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, o, logging.Discard()) }()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for get(t, o, "/readyz") != "200 ok\n" {
		select {
		case err := <-ended:
			t.Fatalf("ended with %v", err)
		case <-tick.C:
		}
	}
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
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d %s", resp.StatusCode, body)
}

func TestRunRefused(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	good := options.Network{NodeName: "worker", Template: "/t", Output: "/o.conflist", Kubeconfig: nodeServer(t, corev1.Node{})}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for name, c := range map[string]struct {
		set  func(o *options.Network)
		want string
	}{
		"no name":             {func(o *options.Network) { o.NodeName = "" }, "--node-name"},
		"relative template":   {func(o *options.Network) { o.Template = "t" }, "--template"},
		"relative output":     {func(o *options.Network) { o.Output = "o.conflist" }, "--output"},
		"extension of output": {func(o *options.Network) { o.Output = "/o.conf" }, ".conflist"},
		"no API server":       {func(o *options.Network) { o.Kubeconfig = "" }, "--kubeconfig"},
		"address in use":      {func(o *options.Network) { o.MetricsAddress = taken.Addr().String() }, "--metrics-address"},
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
