package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// eksList is the list that aws-vpc-cni writes: the address of a pod comes from aws-cni's own daemon, and
// egress-cni has a link-local range for NAT.
const eksList = `{"cniVersion":"0.4.0","name":"aws-cni","plugins":[
	{"type":"aws-cni","vethPrefix":"eni","mtu":"9001"},
	{"type":"egress-cni","mtu":"9001","enabled":"false","nodeIP":"","ipam":{"type":"host-local",
		"ranges":[[{"subnet":"169.254.172.0/22"}]],"routes":[{"dst":"0.0.0.0/0"}],"dataDir":"STORE"}},
	{"type":"portmap","capabilities":{"portMappings":true}}]}`

// chain returns a network with a plugin object of that ipam section.
func chain(ipam string) string {
	return `{"cniVersion":"0.3.1","name":"pods","plugins":[{"type":"cilium-cni","ipam":` + ipam + `}]}`
}

// With a configuration that cannot give an address the daemon is not ready before the first request and
// names the reason, as doctor does. A request leaves no record.
func TestUnusableConfiguration(t *testing.T) {
	t.Parallel()
	const v4 = `"ranges":[[{"subnet":"10.15.0.0/24"}]]`
	for name, tt := range map[string]struct {
		conf string
		// check is the failed check of doctor. texts must be in its findings and readiness.
		check string
		texts []string
	}{
		"range of a chained plugin": {eksList, "cni-config", []string{"05-cilium.conflist", "egress-cni", "aws-cni", "--cni-network"}},
		"multus":                    {`{"cniVersion":"0.3.1","name":"m","plugins":[{"type":"multus","delegates":[{"type":"bridge","ipam":{"type":"host-local",` + v4 + `}}]}]}`, "cni-config", []string{"multus", "delegates"}},
		"flannel":                   {`{"cniVersion":"0.3.1","name":"cbr0","plugins":[{"type":"flannel","delegate":{"isDefaultGateway":true}},{"type":"portmap"}]}`, "cni-config", []string{"flannel", "delegate"}},
		"usePodCidr":                {chain(`{"type":"host-local","subnet":"usePodCidr"}`), "plugin", []string{"05-cilium.conflist", "usePodCidr"}},
		"usePodCidr in ranges":      {chain(`{"type":"host-local","ranges":[[{"subnet":"usePodCidr"}],[{"subnet":"usePodCidrIPv6"}]]}`), "plugin", []string{"05-cilium.conflist", "usePodCidr"}},
		"no ranges":                 {chain(`{"type":"host-local"}`), "plugin", []string{"05-cilium.conflist", "ranges"}},
		"static without addresses":  {chain(`{"type":"static"}`), "plugin", []string{"05-cilium.conflist", "static", "addresses"}},
		"no resolvConf":             {chain(`{"type":"host-local",` + v4 + `,"resolvConf":"STORE/none.conf"}`), "plugin", []string{"05-cilium.conflist", "resolvConf", "none.conf"}},
		"other family":              {chain(`{"type":"host-local","ranges":[[{"subnet":"fd00:15::/112"}]]}`), "plugin", []string{"05-cilium.conflist", "ipv6", "--enable-ipv6"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := harness.NewNode(t)
			n.InstallPlugin(t, "static")
			n.Flags = []string{"--enable-ipv6=false"}
			conf := strings.ReplaceAll(tt.conf, "STORE", n.StoreDir)
			conf = strings.ReplaceAll(conf, `{"type":"host-local"`, `{"type":"host-local","dataDir":"`+n.StoreDir+`"`)
			n.WriteConf(t, "05-cilium.conflist", []byte(conf))
			doctorWithOptions(t, n, nil).wantProblems(t, []string{"error daemon", "error " + tt.check}, tt.texts...)
			s := n.Launch(t)
			s.WaitServing(t)
			wantNotReady(t, s.Ready(), tt.texts...)
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

// The option names the plugin of a list whose range is that of the pods.
func TestNamedPlugin(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t)
	n.WriteConf(t, "10-aws.conflist", []byte(strings.ReplaceAll(eksList, "STORE", n.StoreDir)))
	s := n.Launch(t, "--enable-ipv6=false", "--cni-network=aws-cni/egress-cni")
	s.WaitServing(t)
	wantInSubnet(t, s.AllocateFor(t, "router")[0], "169.254.172.0/22")
}
