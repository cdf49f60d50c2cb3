package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestLogNoSecrets(t *testing.T) {
	t.Parallel()
	const inFile, inEnvironment = "hunter2-in-the-file", "hunter2-in-the-environment"
	for _, level := range []string{"info", "trace"} {
		for _, format := range []string{"text", "json"} {
			t.Run(level+" as "+format, func(t *testing.T) {
				t.Parallel()
				n, plugin := scriptedNode(t, "scripted", map[string]any{"subnet": "10.15.0.0/24", "password": inFile})
				n.Env = []string{"DB_PASSWORD=" + inEnvironment}
				n.Flags = append(n.Flags, "--log-level="+level, "--log-format="+format, "--plugin-env=DB_PASSWORD")
				s := n.Start(t)
				ip := s.AllocateFor(t, "router")[0]
				for _, verb := range []string{"ADD", "DEL"} {
					plugin.SetScript(t, verb, `{"error":{"code":11,"msg":"no"},"stderr":"trouble"}`)
				}
				s.TryAllocate(t, harness.Request{Owner: "health"})
				s.TryRelease(t, ip)
				for _, crash := range []string{`{"stdout":"nonsense"}`, `{"exitCode":3}`, `{"killSelf":9}`} {
					plugin.SetScript(t, "ADD", crash)
					s.TryAllocate(t, harness.Request{Owner: "ingress"})
				}
				for _, verb := range []string{"ADD", "DEL"} {
					plugin.ClearScript(t, verb)
				}
				n.WriteConf(t, "05-cilium.conflist", []byte(`{"name":"pods","plugins":[{"ipam":{"password":"`+inFile+`"`))
				n.WriteConf(t, "06-cilium.conflist", []byte(`{"name":"pods","cniVersion":"1.0.0","plugins":[{"type":"cilium-cni","ipam":{"type":7,"password":"`+inFile+`"}}]}`))
				harness.Eventually(t, "the broken configuration to be reported", func() error {
					if h := s.Health(t); len(h.DelegatedIPAM.Pools) != 1 || h.DelegatedIPAM.Pools[0].Error == "" {
						return fmt.Errorf("health has %+v", h.DelegatedIPAM.Pools)
					}
					return nil
				})
				s.Stop(t)
				n.ResetHistory()
				if !plugin.Received(t, inFile) || !plugin.Received(t, inEnvironment) {
					t.Error("the plugin did not get the passwords; the test proves nothing")
				}
				if strings.Contains(s.Log(), "hunter2") {
					t.Errorf("the log has a password:\n%s", s.Log())
				}
				if level == "trace" && (!strings.Contains(s.Log(), "Plugin call ended") || !strings.Contains(s.Log(), "trouble")) {
					t.Errorf("the log has no plugin calls; the test proves nothing:\n%s", s.Log())
				}
			})
		}
	}
}
