package cli

import (
	"testing"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
	"github.com/delegated-ipam/delegated-ipam/internal/containerid"
)

func TestID(t *testing.T) {
	responses := map[string][]response{
		"GET /v1/ipam":    {jsonResponse(200, read(t, "attachments.json"))},
		"GET /v1/healthz": {jsonResponse(200, read(t, "status-ready.json"))},
	}
	const list, health = "GET /v1/ipam", "GET /v1/healthz"
	for name, tt := range map[string]struct {
		args  []string
		want  string
		notes []string
		asked []string
	}{
		"in use":                 {[]string{"router"}, "cilium-agent-router-1111111111111111", nil, []string{list}},
		"in use in another pool": {[]string{"router", "--pool=blue"}, containerid.For("router", "worker-1", "blue-net"), []string{`no attachment in pool "blue"`}, []string{list, health}},
		"new":                    {[]string{"nobody"}, containerid.For("nobody", "worker-1", "pods"), []string{`no attachment in pool "default", and a new one may get a suffix (-gN or -u...) (node "worker-1", network "pods")`}, []string{list, health}},
		"other node":             {[]string{"router", "--node-name=worker-2"}, containerid.For("router", "worker-2", "pods"), []string{`may have a suffix (-gN or -u...), which list shows (node "worker-2"`}, []string{health}},
		"other network":          {[]string{"router", "--cni-network=other"}, containerid.For("router", "worker-1", "other"), []string{"computed: the ID in use"}, []string{health}},
		"no daemon needed":       {[]string{"router", "--node-name=a", "--cni-network=b"}, containerid.For("router", "a", "b"), []string{"computed: the ID in use"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := startDaemon(t, responses)
			s.dependencies().exec(t, append([]string{"id"}, tt.args...)...).wants(t, cmdline.ExitOK, tt.want+"\n", tt.notes...)
			s.wantRequests(t, tt.asked...)
		})
	}
}

// The daemon lists the default pool by its name.
func TestIDDefaultPool(t *testing.T) {
	s := startDaemon(t, map[string][]response{
		"GET /v1/ipam": {jsonResponse(200, `[{"owner":"router","pool":"red","container-id":"id-red"},{"owner":"router","pool":"blue","container-id":"id-blue"}]`)},
		"GET /v1/healthz": {jsonResponse(200, `{"delegated-ipam":{"node-name":"n","pools":[{"pool":"blue","network":"pods"},{"pool":"red","network":"r"}],
			"options":[{"name":"ipam-default-ip-pool","value":"blue","source":"flag"}]}}`)},
	})
	s.dependencies().exec(t, "id", "router").wants(t, cmdline.ExitOK, "id-blue\n")
	s.dependencies().exec(t, "id", "router", "--pool=default").wants(t, cmdline.ExitOK, "id-blue\n")
	s.dependencies().exec(t, "id", "router", "--pool=red").wants(t, cmdline.ExitOK, "id-red\n")
	s.dependencies().exec(t, "id", "health").wants(t, cmdline.ExitOK, containerid.For("health", "n", "pods")+"\n", `network "pods"`)
}

// A container has the ID of its runtime, on each node and in each network.
func TestIDOfContainer(t *testing.T) {
	s := startDaemon(t, map[string][]response{"GET /v1/ipam": {jsonResponse(200, `[{"owner":"cni/0a1b/eth0","pool":"red","container-id":"0a1b"}]`)}})
	s.dependencies().exec(t, "id", "cni/0a1b/eth0", "-o=json").wants(t, cmdline.ExitOK, "{\n  \"container-id\": \"0a1b\",\n  \"in-use\": true\n}\n", "the container runtime's own ID")
	s.dependencies().exec(t, "id", "cni/77cc/eth0").wants(t, cmdline.ExitOK, "77cc\n", "the container runtime's own ID")
	testDependencies(nil).exec(t, "id", "cni/77cc/eth0", "--cni-network=b").wants(t, cmdline.ExitOK, "77cc\n", "the container runtime's own ID")
}

func TestIDJSON(t *testing.T) {
	id := containerid.For("router", "a", "b")
	testDependencies(nil).exec(t, "id", "router", "--node-name=a", "--cni-network=b", "-o=json").
		wants(t, cmdline.ExitOK, "{\n  \"container-id\": \""+id+"\",\n  \"in-use\": false\n}\n", "computed")
}

func TestIDUnknownNetwork(t *testing.T) {
	s := startDaemon(t, map[string][]response{
		"GET /v1/ipam":    {jsonResponse(200, "[]")},
		"GET /v1/healthz": {jsonResponse(200, read(t, "status-not-ready.json"))},
	})
	for _, pool := range []string{"blue", "red"} {
		s.dependencies().exec(t, "id", "router", "--pool", pool).wants(t, cmdline.ExitFailed, "", `"`+pool+`"`, `["default" "blue"]`, "--cni-network")
	}
}
