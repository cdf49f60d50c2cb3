package bridge

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/dynamic"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/ciliumnode"
	"github.com/delegated-ipam/delegated-ipam/internal/bridge/planner"
	"github.com/delegated-ipam/delegated-ipam/internal/kube"
	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/bridge/apiserver"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// slotServer is a daemon that allocates and never releases. The bridge allocates in parallel.
type slotServer struct {
	mu    sync.Mutex
	slots map[string]string
}

func (s *slotServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.URL.Path == "/v1/config":
		fmt.Fprint(w, `{"status":{"addressing":{"ipv4":{"enabled":true}}}}`)
	case r.URL.Path == "/v1/healthz":
		_, _ = io.WriteString(w, `{"delegated-ipam":{}}`)
	case r.Method == http.MethodPost:
		owner := r.URL.Query().Get("owner")
		s.slots[owner] = ip(len(s.slots) + 1).String()
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, `{"address":{"ipv4":%q}}`, s.slots[owner])
	default:
		list := []map[string]any{}
		for owner, ip := range s.slots {
			list = append(list, map[string]any{
				"owner": owner, "pool": "default", "state": "held", "claims": []string{"ipv4"},
				"addresses": []map[string]string{{"family": "ipv4", "ip": ip}},
			})
		}
		_ = json.NewEncoder(w).Encode(list)
	}
}

func get(url string) (int, string) {
	resp, err := http.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body)
}

func TestRun(t *testing.T) {
	api, address := apiserver.Start(t), check.FreeAddress(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, options.Bridge{
			NodeName: "worker", Kubeconfig: api.Kubeconfig(t), Host: serveUnix(t, &slotServer{slots: map[string]string{}}), Pool: "default",
			MinAllocate: 4, PreAllocate: 1, ReleaseDelay: time.Minute, MetricsAddress: address,
		}, logging.Discard())
	}()
	status := func(path string, want int) func() error {
		return func() error {
			if code, body := get("http://" + address + path); code != want {
				return fmt.Errorf("%s is %d %s", path, code, body)
			}
			return nil
		}
	}
	harness.Eventually(t, "/healthz", status("/healthz", http.StatusOK))
	harness.Eventually(t, "not ready without a CiliumNode", status("/readyz", http.StatusServiceUnavailable))
	api.Create("other", apiserver.Object{})
	foreign := apiserver.Object{"192.0.2.7": apiserver.Object{"resource": "eni-1"}}
	api.Create("worker", apiserver.Object{"ipam": apiserver.Object{"pool": foreign}})
	harness.Eventually(t, "ready", status("/readyz", http.StatusOK))
	// It is ready from the first publication, of three addresses. The foreign entry stays as it was.
	harness.Eventually(t, "the pool", func() error {
		if n, _ := api.Node(t, "worker"); len(n.Pool) != 5 || n.Pool["192.0.2.7"] != (apiserver.Entry{Resource: "eni-1"}) {
			return fmt.Errorf("the pool is %v; want 4 addresses beside that of eni-1", n.Pool)
		}
		return nil
	})
	if n, _ := api.Node(t, "other"); len(n.Pool) != 0 {
		t.Errorf("the pool of another node is %v; want none", n.Pool)
	}
	code, body := get("http://" + address + "/metrics")
	if code != http.StatusOK || !strings.Contains(body, "delegated_ipam_bridge_acquisitions_total{outcome=\"acquired\"} 4") {
		t.Errorf("the metrics are %d %s", code, body)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("ended with %v; want nil", err)
	}
}

func TestRunInvalid(t *testing.T) {
	good := options.Bridge{
		NodeName: "worker", Kubeconfig: apiserver.Start(t).Kubeconfig(t), Host: "/none", Pool: "default", PreAllocate: 1, ReleaseDelay: time.Minute,
	}
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	check.Must(t, err)
	defer taken.Close()
	broken := filepath.Join(t.TempDir(), "broken")
	check.Must(t, os.WriteFile(broken, []byte("{"), 0o600))
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for name, tt := range map[string]struct {
		set   func(c *options.Bridge)
		names string
	}{
		"no node name":                    {func(c *options.Bridge) { c.NodeName = "" }, "--node-name"},
		"max-allocate below the agent's":  {func(c *options.Bridge) { c.MaxAllocate = 2 }, "--max-allocate"},
		"max-allocate below min-allocate": {func(c *options.Bridge) { c.MinAllocate, c.MaxAllocate = 9, 8 }, "--max-allocate"},
		"metrics address with a word":     {func(c *options.Bridge) { c.MetricsAddress = ":no-such-service" }, "--metrics-address"},
		"metrics address in use":          {func(c *options.Bridge) { c.MetricsAddress = taken.Addr().String() }, "--metrics-address"},
		"no kubeconfig":                   {func(c *options.Bridge) { c.Kubeconfig = "/none" }, "--kubeconfig"},
		"broken kubeconfig":               {func(c *options.Bridge) { c.Kubeconfig = broken }, "--kubeconfig"},
		"no pod":                          {func(c *options.Bridge) { c.Kubeconfig = "" }, "--kubeconfig"},
	} {
		t.Run(name, func(t *testing.T) {
			c := good
			tt.set(&c)
			if err := Run(t.Context(), c, logging.Discard()); err == nil || !strings.Contains(err.Error(), tt.names) {
				t.Errorf("ended with %v; want an error that names %s", err, tt.names)
			}
		})
	}
}

// workerAPI returns a client of the CiliumNode "worker".
func workerAPI(t *testing.T, api *apiserver.Server) watchedNode {
	t.Helper()
	config, err := kube.Config(api.Kubeconfig(t), component)
	check.Must(t, err)
	client, err := dynamic.NewForConfig(config)
	check.Must(t, err)
	return watchedNode{resource: client.Resource(ciliumnode.Resource()), name: "worker", metrics: newMetrics()}
}

func TestAPIErrors(t *testing.T) {
	api := apiserver.Start(t)
	n := workerAPI(t, api)
	_, err := n.get(t.Context())
	wantReason(t, apiError(err), reasonNodeMissing)
	api.Create("worker", apiserver.Object{})
	seen, err := n.get(t.Context())
	check.Must(t, err)
	publish := []planner.Action{{Kind: planner.Publish, Slot: 3, IPs: []netip.Addr{ip(1), ip(2)}}}
	after, err := n.patch(t.Context(), newPatch(seen.Metadata.ResourceVersion, targetSpec, publish))
	if err != nil || len(after.Spec.IPAM.Pool) != 2 {
		t.Fatalf("after the patch: %+v, %v", after, err)
	}
	if _, err := n.patch(t.Context(), newPatch(seen.Metadata.ResourceVersion, targetSpec, publish)); !apierrors.IsConflict(apiError(err)) {
		t.Errorf("a patch of an old version ends with %v; want a conflict", err)
	}
	api.Allow(func(apiserver.Permission) bool { return false })
	_, err = n.get(t.Context())
	wantReason(t, apiError(err), reasonNotPermitted)
	api.Down()
	_, err = n.get(t.Context())
	wantReason(t, apiError(err), reasonAPIUnavailable)
}

func TestPublishResumes(t *testing.T) {
	api := apiserver.Start(t)
	api.Create("worker", apiserver.Object{})
	n := workerAPI(t, api)
	for _, kind := range []planner.Kind{planner.Publish, planner.Suspend, planner.Publish, planner.Withdraw} {
		seen, err := n.get(t.Context())
		check.Must(t, err)
		actions := []planner.Action{{Kind: kind, Slot: 3, IPs: []netip.Addr{ip(1)}}}
		seen, err = n.patch(t.Context(), newPatch(seen.Metadata.ResourceVersion, targetSpec, actions))
		check.Must(t, err)
		v, _ := seen.Observed()
		entry, published := v.Pool[ip(1)]
		if slot, _ := entry.Slot(); published != (kind != planner.Withdraw) || entry.Suspended() != (kind == planner.Suspend) || published && slot != 3 {
			t.Errorf("after %s the entry is %+v, %v", kind, entry, published)
		}
	}
}
