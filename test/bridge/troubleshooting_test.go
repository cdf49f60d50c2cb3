package bridge

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/bridge/apiserver"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// Each reason is on the page and shown by /readyz of the real bridge, and the remedy of its row lets it
// fill the pool.
func TestTroubleshooting(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/troubleshooting.md")
	check.Must(t, err)
	for reason, arise := range map[string]func(t *testing.T, f *fixture) (remedy func()){
		"DaemonUnavailable": func(t *testing.T, f *fixture) func() {
			f.daemon.Stop(t)
			return func() { f.daemon = f.node.Start(t) }
		},
		"NotPermitted": func(_ *testing.T, f *fixture) func() {
			f.server.Allow(func(r apiserver.Permission) bool { return r.Verb != "patch" || r.Resource == "events" })
			return func() { f.server.Allow(func(apiserver.Permission) bool { return true }) }
		},
		"WrongIPAMMode": func(_ *testing.T, f *fixture) func() {
			f.server.Delete(f.node.Name)
			f.server.Create(f.node.Name, apiserver.Object{"ipam": apiserver.Object{"podCIDRs": []any{"10.1.0.0/24"}}})
			return func() {
				f.server.Delete(f.node.Name)
				f.server.Create(f.node.Name, apiserver.Object{"ipam": apiserver.Object{}})
			}
		},
		"PoolExhausted": func(t *testing.T, f *fixture) func() {
			f.writeRange(t, "10.15.0.0/30")
			return func() { f.writeRange(t, "10.15.0.0/24") }
		},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			if !strings.Contains(string(page), "`"+reason+"`") {
				t.Error("the page does not have the reason")
			}
			f := newFixture(t, false)
			remedy := arise(t, f)
			address := check.FreeAddress(t)
			startBridge(t, f.server, f.node, append(smallFlags(), "--metrics-address="+address)...)
			harness.Eventually(t, "the reason in /readyz", func() error {
				if got, err := get("http://" + address + "/readyz"); err != nil || !strings.Contains(got, reason) {
					return fmt.Errorf("%q, %w", got, err)
				}
				return nil
			})
			if reason == "WrongIPAMMode" {
				f.wantUnchanged(t)
			}
			remedy()
			harness.Eventually(t, "the pool to be filled", func() error { return f.poolHas(t, 4) })
		})
	}
}

// writeRange changes the range of the plugin, and waits until the daemon has read it.
func (f *fixture) writeRange(t *testing.T, subnet string) {
	t.Helper()
	network := harness.IPv4Only()
	network.Subnets = []string{subnet}
	const message = "CNI configuration read"
	before := strings.Count(f.daemon.Log(), message)
	f.node.WriteNetwork(t, "05-cilium", network)
	harness.Eventually(t, "the daemon to read the configuration", func() error {
		if strings.Count(f.daemon.Log(), message) == before {
			return fmt.Errorf("no line %q", message)
		}
		return nil
	})
}

func get(url string) (string, error) {
	a, err := http.Get(url)
	if err != nil {
		return "", err
	}
	defer a.Body.Close()
	body, err := io.ReadAll(a.Body)
	return string(body), err
}
