package profiletry

import (
	"encoding/json"
	"net/netip"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// addr returns the n-th address of the pool.
func addr(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 1, 0, byte(n + 1)}) }

func resultOf(ips ...netip.Addr) call.Result {
	var r call.Result
	var listed []map[string]string
	for _, ip := range ips {
		a := call.Address{Prefix: netip.PrefixFrom(ip, 24), Gateway: netip.MustParseAddr("10.1.0.1")}
		r.Addresses = append(r.Addresses, a)
		listed = append(listed, map[string]string{"address": a.Prefix.String(), "gateway": "10.1.0.1"})
	}
	r.Raw, _ = json.Marshal(map[string]any{"cniVersion": "1.1.0", "ips": listed})
	return r
}

// prevOf returns the address of prevResult.
func prevOf(t *testing.T, c call.Call) netip.Addr {
	t.Helper()
	var prev struct {
		IPs []struct{ Address netip.Prefix } `json:"ips"`
	}
	if err := json.Unmarshal(c.PrevResult, &prev); err != nil || len(prev.IPs) == 0 {
		t.Fatalf("prevResult %s: %v, want an address", c.PrevResult, err)
	}
	return prev.IPs[0].Address.Addr()
}
