package e2e

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// requestingProfile is the profile of a plugin whose store cannot be read, and that honours requests
// by one convention.
func requestingProfile(pluginType, convention string) string {
	profile := strings.Replace(customProfile, `"host-local"`, fmt.Sprintf("%q", pluginType), 1)
	return strings.Replace(profile, `"namespace"`, fmt.Sprintf(`"requests": [%q], "requestForm": "address", "namespace"`, convention), 1)
}

// declareIPs makes the plugin object declare the capability without which runtimeConfig.ips is not sent.
func declareIPs(t *testing.T, n *harness.Node) {
	t.Helper()
	const name = "05-cilium.conflist"
	text, err := os.ReadFile(filepath.Join(n.ConfDir, name))
	check.Must(t, err)
	n.WriteConf(t, name, []byte(strings.Replace(string(text), `"type": "cilium-cni"`, `"type": "cilium-cni", "capabilities": {"ips": true}`, 1)))
}

// restoreBoth restores the addresses of the router, each with the other, in this order.
func restoreBoth(t *testing.T, s *harness.Daemon, ips ...string) {
	t.Helper()
	for i, ip := range ips {
		got := s.Do(t, http.MethodPost, "/v1/ipam/"+ip+"?owner=router&also="+url.QueryEscape(ips[1-i]))
		got.WantStatus(t, http.StatusOK)
	}
}

// The journal is lost, and the plugin's store cannot be read: only the client knows the addresses.
func TestRestoreBothFamilies(t *testing.T) {
	t.Parallel()
	for name, plugin := range map[string]struct{ pluginType, convention string }{
		"host-local, args.cni.ips":    {"host-local", "args.cni.ips"},
		"scripted, runtimeConfig.ips": {"scripted", "runtimeConfig.ips"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := nodeWith(t, harness.DualStack())
			if plugin.pluginType == "scripted" {
				var scripted harness.Scripted
				n, scripted = scriptedNode(t, plugin.pluginType, map[string]any{"ranges": [][]map[string]string{{{"subnet": "10.15.0.0/24"}}, {{"subnet": "fd00:15::/112"}}}})
				n.Store = func() ([]oracle.Lease, error) { return scripted.Leases("pods") }
			}
			declareIPs(t, n)
			n.Flags = append(n.Flags, "--plugin-profile="+writeProfile(t, n, requestingProfile(plugin.pluginType, plugin.convention)))
			s := n.Start(t)
			lower := s.AllocateFor(t, "first")
			held := s.AllocateFor(t, "router")
			s.Release(t, lower...)
			// So that neither plugin would return the router's addresses next.
			s.Release(t, s.AllocateFor(t, "health")...)
			for _, order := range [][]string{held, {held[1], held[0]}} {
				s.Kill(t)
				n.WipeJournal(t)
				s = n.Start(t)
				restoreBoth(t, s, order...)
				wantLeased(t, n, held...)
				wantLeaseCount(t, n, len(held))
			}
			wantAddresses(t, s.AllocateFor(t, "router"), held)
			s.Release(t, held...)
			wantLeaseCount(t, n, 0)
		})
	}
}

// After an uninstall the plugin's store is empty, too.
func TestRestoreBothAfterUninstall(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	s := n.Start(t)
	restoreBoth(t, s, "10.15.0.77", "fd00:15::99")
	wantLeased(t, n, "10.15.0.77", "fd00:15::99")
	wantLeaseCount(t, n, 2)
	s.Release(t, "10.15.0.77", "fd00:15::99")
}
