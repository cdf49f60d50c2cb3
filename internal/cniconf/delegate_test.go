package cniconf

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

func TestDelegate(t *testing.T) {
	got, err := ParseList([]byte(`{"name":"pods","cniVersion":"1.0.0","plugins":[{"type":"cilium-cni","huge":12345678901234567890,
		"ipam":{"type":"delegated-ipam-cni","socket":"/s","delegate":{"type":"host-local","ranges":[[{"subnet":"10.0.0.0/24"}]]}}}]}`))
	want := call.Network{
		Name: "pods", CNIVersion: "1.0.0", IPAMType: "host-local", ServesContainers: true,
		PluginConfig: json.RawMessage(`{"huge":12345678901234567890,"ipam":{"type":"host-local","ranges":[[{"subnet":"10.0.0.0/24"}]]},"type":"cilium-cni"}`),
	}
	if err != nil || !got.Equal(want) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
}

func TestDelegateRefused(t *testing.T) {
	for name, c := range map[string]struct{ ipam, want string }{
		"no delegate":             {`{"type":"delegated-ipam-cni"}`, "ipam.delegate is missing"},
		"delegate without a type": {`{"type":"delegated-ipam-cni","delegate":{}}`, "type is missing"},
		"not an object":           {`{"type":"delegated-ipam-cni","delegate":"host-local"}`, "ipam.delegate"},
		"itself":                  {`{"type":"delegated-ipam-cni","delegate":{"type":"delegated-ipam-cni"}}`, "calls the daemon"},
		"itself, nested":          {`{"type":"delegated-ipam-cni","delegate":{"type":"p","delegate":{"type":"delegated-ipam-cni"}}}`, "calls the daemon"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseList([]byte(`{"name":"pods","cniVersion":"1.0.0","plugins":[{"type":"cilium-cni","ipam":` + c.ipam + `}]}`))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v; want an error with %q", err, c.want)
			}
		})
	}
}

// A plugin may have a key of that name for another purpose.
func TestDelegateOfOtherForm(t *testing.T) {
	if kind, err := delegateType(json.RawMessage(`{"type":"p","delegate":["x"]}`)); err != nil || kind != "p" {
		t.Errorf("got %q, %v; want p", kind, err)
	}
}
