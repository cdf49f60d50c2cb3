package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// With a configuration that cannot give an address the daemon is not ready before the first request and
// names the reason, as doctor does. A request leaves no record.
func TestUnusableConfiguration(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		ipam string
		// texts are in the findings of doctor and in readiness.
		texts []string
	}{
		"usePodCidr":               {`{"type":"host-local","subnet":"usePodCidr"}`, []string{"usePodCidr"}},
		"usePodCidr in ranges":     {`{"type":"host-local","ranges":[[{"subnet":"usePodCidr"}],[{"subnet":"usePodCidrIPv6"}]]}`, []string{"usePodCidr"}},
		"no ranges":                {`{"type":"host-local"}`, []string{"ranges"}},
		"static without addresses": {`{"type":"static"}`, []string{"static", "addresses"}},
		"no resolvConf":            {`{"type":"host-local","ranges":[[{"subnet":"10.15.0.0/24"}]],"resolvConf":"STORE/none.conf"}`, []string{"resolvConf", "none.conf"}},
		"other family":             {`{"type":"host-local","ranges":[[{"subnet":"fd00:15::/112"}]]}`, []string{"ipv6", "--enable-ipv6"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := harness.NewNode(t)
			n.InstallPlugin(t, "static")
			n.Flags = []string{"--enable-ipv6=false"}
			ipam := strings.NewReplacer("STORE", n.StoreDir, `"type":"host-local"`, `"type":"host-local","dataDir":"`+n.StoreDir+`"`).Replace(tt.ipam)
			n.WriteConf(t, "05-cilium.conflist", []byte(`{"cniVersion":"0.3.1","name":"pods","plugins":[{"type":"cilium-cni","ipam":`+ipam+`}]}`))
			texts := append(tt.texts, "05-cilium.conflist")
			doctorWithOptions(t, n, nil).wantProblems(t, []string{"error daemon", "error plugin"}, texts...)
			s := n.Launch(t)
			s.WaitServing(t)
			wantNotReady(t, s.Ready(), texts...)
			s.TryAllocate(t, harness.Request{Owner: "router"}).WantStatus(t, http.StatusBadGateway)
			wantNoAttachment(t, s, "router")

			n.WriteNetwork(t, "05-cilium", harness.IPv4Only())
			s.WaitReady(t)
			s.AllocateFor(t, "router")
			s.WaitConsistent(t)
			s.Stop(t)
		})
	}
}
