package plugins

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/cluster"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

const (
	azureSubnet = "10.15.0.0/24"
	// azureStore is compiled into the plugin, as is the address of the host's agent.
	azureStore, azureAgent = "/run/azure-vnet-ipam.json", "168.63.129.16"
)

// azureHost imitates the agent of an Azure host, which has the addresses of the machine's interfaces: the first one is
// the machine's own.
func azureHost(t *testing.T) *gate {
	t.Helper()
	cluster.RunLines(t, "ip addr replace "+azureAgent+"/32 dev lo")
	listener, err := net.Listen("tcp", azureAgent+":80")
	check.Must(t, err)
	var addresses strings.Builder
	for i := range 17 {
		fmt.Fprintf(&addresses, `<IPAddress Address="10.15.0.%d" IsPrimary="%t"/>`, 4+i, i == 0)
	}
	g := &gate{}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		g.pass()
		fmt.Fprintf(w, `<Interfaces><Interface MacAddress="*" IsPrimary="true"><IPSubnet Prefix="%s">%s</IPSubnet></Interface></Interfaces>`, azureSubnet, &addresses)
	})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { server.Close() })
	check.Must(t, os.RemoveAll(azureStore))
	return g
}

func azureLeases() ([]oracle.Lease, error) {
	data, err := os.ReadFile(azureStore)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var content struct {
		IPAM struct {
			AddressSpaces map[string]struct {
				Pools map[string]struct {
					Addresses map[netip.Addr]struct {
						ID    string
						InUse bool
					}
				}
			}
		}
	}
	var all []oracle.Lease
	if err := errors.Join(err, json.Unmarshal(data, &content)); err != nil {
		return nil, err
	}
	for ip, a := range content.IPAM.AddressSpaces["local"].Pools[azureSubnet].Addresses {
		if a.InUse {
			all = append(all, oracle.Lease{Network: networkName, IP: ip, ContainerID: a.ID, Interface: "eth0"})
		}
	}
	return all, nil
}

// azureFacts correct what profile try proposes, by the plugin's source: its store is below /run and in one file, which it
// writes itself, and a failed ADD releases nothing.
var azureFacts = map[string]any{"podIdentity": "none", "store": "node", "addOutlivesSeconds": 0, "verifyBy": "add"}

func TestAzureVNet(t *testing.T) {
	const pluginType = "azure-vnet-ipam"
	node := func(t *testing.T, ipam map[string]any) (*harness.Node, *gate) {
		n := newNode(t, pluginType, ipam, azureLeases)
		return n, azureHost(t)
	}
	withSubnet := map[string]any{"subnet": azureSubnet}
	t.Run("serve", func(t *testing.T) {
		n, host := node(t, withSubnet)
		r := try(t, n, pluginType, map[string]string{
			"repeatedAdd": "same-answer", "verifyBy": "nothing", "checkProves": "nothing", "requests": "<nil>",
			"unique": "true", "dangers": "<nil>", "delNotHeld": "<nil>",
		})
		testServe(t, n, host, corrected(t, n, r.Proposal, azureFacts))
	})
	// A reboot empties its store. Only verifyBy "add" notices that.
	for verifyBy, noticed := range map[string]bool{"add": true, "nothing": false} {
		t.Run("reboot, verifyBy "+verifyBy, func(t *testing.T) {
			n, _ := node(t, withSubnet)
			r := try(t, n, pluginType, nil)
			flags := []string{corrected(t, n, r.Proposal, azureFacts)}
			if !noticed {
				flags = []string{corrected(t, n, r.Proposal, map[string]any{"store": "node"})}
			}
			s := n.Start(t, flags...)
			s.AllocateFor(t, "router")
			s.Kill(t)
			check.Must(t, os.Remove(azureStore))
			n.Reboot(t)
			n.ResetHistory()
			s = n.Launch(t, flags...)
			s.WaitReady(t)
			s.AllocateFor(t, "router")
			if left := n.Leases(t); len(left) > 0 != noticed {
				t.Errorf("after a reboot the plugin has %v; want that the loss of the router's is noticed: %t", left, noticed)
			}
		})
	}
	// Without ipam.subnet the first ADD alone succeeds, and no DEL.
	t.Run("without subnet", func(t *testing.T) {
		n, _ := node(t, nil)
		out := n.Command(t, "profile", "try", pluginType, "--cni-conf-dir="+n.ConfDir, "--cni-bin-dir="+n.BinDir)
		if out.ExitCode != 1 || !strings.Contains(out.Stdout, "Not released:") || !strings.Contains(out.Stderr, "Pool id not found") {
			t.Errorf("exit code %d, %q, %q; want 1, and that nothing could be released", out.ExitCode, out.Stdout, out.Stderr)
		}
		check.Must(t, os.Remove(azureStore))
	})
}
