package cli

import (
	"slices"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/pkg/containerid"
	"github.com/delegated-ipam/delegated-ipam/pkg/option"
)

func TestAnIDIsThatInUseOrTheOneThatWouldBe(t *testing.T) {
	answers := map[string][]answer{
		"GET /v1/ipam":    {jsonAnswer(200, read(t, "attachments.json"))},
		"GET /v1/healthz": {jsonAnswer(200, read(t, "status-ready.json"))},
	}
	const list, health = "GET /v1/ipam", "GET /v1/healthz"
	tests := map[string]struct {
		args  []string
		want  string
		asked []string
	}{
		"of an owner that holds something":       {[]string{"router"}, "cilium-agent-router-1111111111111111", []string{list}},
		"of an owner that holds it elsewhere":    {[]string{"router", "--pool=blue"}, containerid.ContainerID("router", "worker-1", "blue-net"), []string{list, health}},
		"of an owner that holds nothing":         {[]string{"nobody"}, containerid.ContainerID("nobody", "worker-1", "pods"), []string{list, health}},
		"on another node":                        {[]string{"router", "--node-name=worker-2"}, containerid.ContainerID("router", "worker-2", "pods"), []string{health}},
		"in another network":                     {[]string{"router", "--cni-network=other"}, containerid.ContainerID("router", "worker-1", "other"), []string{health}},
		"on a node and in a network that I name": {[]string{"router", "--node-name=a", "--cni-network=b"}, containerid.ContainerID("router", "a", "b"), nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := startSidecar(t, answers)
			s.program().runHere(t, append([]string{"id"}, tt.args...)...).wants(t, option.Done, tt.want+"\n")
			if got := s.requests(); !slices.Equal(got, tt.asked) {
				t.Errorf("the sidecar was asked %q; want %q", got, tt.asked)
			}
		})
	}
}

func TestAnIDWithoutASidecarCanBeJSON(t *testing.T) {
	id := containerid.ContainerID("router", "a", "b")
	testProgram(nil).runHere(t, "id", "router", "--node-name=a", "--cni-network=b", "-o=json").
		wants(t, option.Done, "{\n  \"container-id\": \""+id+"\"\n}\n")
}

func TestAnIDInAPoolWithoutANetworkIsRefused(t *testing.T) {
	s := startSidecar(t, map[string][]answer{
		"GET /v1/ipam":    {jsonAnswer(200, "[]")},
		"GET /v1/healthz": {jsonAnswer(200, read(t, "status-not-ready.json"))},
	})
	for _, pool := range []string{"blue", "red"} {
		s.program().runHere(t, "id", "router", "--pool", pool).wants(t, option.Failed, "", `"`+pool+`"`, `["default" "blue"]`, "--cni-network")
	}
}
