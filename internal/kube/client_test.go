package kube

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/bridge/apiserver"
)

func TestCommandConfig(t *testing.T) {
	good := apiserver.Start(t).Kubeconfig(t)
	broken := filepath.Join(t.TempDir(), "broken")
	check.Must(t, os.WriteFile(broken, []byte("{"), 0o600))
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for name, tt := range map[string]struct {
		flag, env string
		want      string // empty for success
	}{
		"flag":               {good, broken, ""},
		"environment":        {"", good, ""},
		"a list":             {"", "/none" + string(filepath.ListSeparator) + good, ""},
		"none":               {"", "/none", "--kubeconfig, $KUBECONFIG"},
		"missing file":       {"/none", good, `--kubeconfig is "/none"`},
		"broken file":        {broken, "", "--kubeconfig"},
		"broken environment": {"", broken, "kubeconfig"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(clientcmd.RecommendedConfigPathEnvVar, tt.env)
			c, err := CommandConfig(tt.flag, "test/1")
			switch {
			case tt.want == "" && (err != nil || !strings.HasPrefix(c.Host, "http://127.0.0.1") || c.UserAgent != "test/1" || c.Timeout == 0):
				t.Errorf("got %v, %v", c, err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("got %v; want an error with %q", err, tt.want)
			}
		})
	}
}

func TestConfig(t *testing.T) {
	file := apiserver.Start(t).Kubeconfig(t)
	// A component does not use the configuration of kubectl.
	t.Setenv(clientcmd.RecommendedConfigPathEnvVar, file)
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	c, err := Config(file, "test/1")
	if err != nil || !strings.HasPrefix(c.Host, "http://127.0.0.1") || c.UserAgent != "test/1" || c.Timeout != 0 {
		t.Errorf("got %v, %v; want the server of the file, and no time limit", c, err)
	}
	for flag, want := range map[string]string{"": "outside a pod, name a file with --kubeconfig", "/none": "--kubeconfig"} {
		if c, err := Config(flag, "test/1"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, %v; want an error with %q", flag, c, err, want)
		}
	}
}

// client-go repeats a request by Retry-After; a watch waits for the moment of its node.
func TestRetryAfter(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer s.Close()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"clusters":[{"name":"a","cluster":{"server":%q}}],"contexts":[{"name":"a","context":{"cluster":"a"}}],"current-context":"a"}`, s.URL)
	check.Must(t, os.WriteFile(file, []byte(text), 0o600))
	c, err := Config(file, "test/1")
	check.Must(t, err)
	client, err := rest.HTTPClientFor(c)
	check.Must(t, err)
	for query, want := range map[string]string{"watch=true": "", "limit=1": "1"} {
		response, err := client.Get(s.URL + "/?" + query)
		check.Must(t, err)
		response.Body.Close()
		if got := response.Header.Get("Retry-After"); got != want {
			t.Errorf("%s: Retry-After %q, want %q", query, got, want)
		}
	}
}

// The nodes of a cluster are spread over RetryInterval: with numbered names evenly.
func TestOffset(t *testing.T) {
	const nodes, parts = 100, 12
	for name, tt := range map[string]struct {
		node  func(i int) string
		limit int // nodes in one of the parts; 8 on average
	}{
		"numbers":    {func(i int) string { return fmt.Sprint("node-", i) }, 10},
		"addresses":  {func(i int) string { return fmt.Sprint("ip-10-0-", i/50, "-", i%50) }, 10},
		"random end": {func(i int) string { return fmt.Sprintf("pool-%xq", uint32(i)*2654435761) }, 20},
	} {
		t.Run(name, func(t *testing.T) {
			var in [parts]int
			for i := range nodes {
				offset := Offset(tt.node(i))
				if offset < 0 || offset >= RetryInterval {
					t.Fatalf("the offset of %s is %s", tt.node(i), offset)
				}
				in[offset*parts/RetryInterval]++
			}
			if slices.Max(in[:]) > tt.limit {
				t.Errorf("nodes in each part are %v; want at most %d", in, tt.limit)
			}
		})
	}
}

func TestBackoff(t *testing.T) {
	b := Backoff()
	for i, limit := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 2 * maxBackoff, 2 * maxBackoff} {
		if got := b.Step(); got < limit/2 || got >= limit {
			t.Errorf("delay %d is %s; want at least half of %s, and less than that", i, got, limit)
		}
	}
}
