package cli

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
)

// bothFamilies is a response to an allocation.
const bothFamilies = `{"address":{"ipv4":"10.15.0.2","ipv4-pool-name":"default","ipv6":"fd00:15::2"},"host-addressing":{}}`

func TestAllocate(t *testing.T) {
	for name, tt := range map[string]struct {
		args   []string
		body   string
		stdout string
		asked  string
	}{
		"both families of an owner": {
			[]string{"allocate", "router"},
			bothFamilies, "10.15.0.2\nfd00:15::2\n", "POST /v1/ipam?owner=router",
		},
		"one family of a pool": {
			[]string{"allocate", "kube-system/a", "--family", "ipv6", "--pool", "blue"},
			`{"address":{"ipv6":"fd00::9"},"host-addressing":{}}`, "fd00::9\n", "POST /v1/ipam?family=ipv6&owner=kube-system%2Fa&pool=blue",
		},
		"an address that must be confirmed": {
			[]string{"allocate", "pod", "--expiration"},
			`{"address":{"ipv4":"10.15.0.7"},"host-addressing":{}}`, "10.15.0.7\n", "POST /v1/ipam?owner=pod expiration=true",
		},
		"everything as JSON": {
			[]string{"allocate", "router", "-o", "json"},
			`{"address":{"ipv4":"10.15.0.2"},"host-addressing":{}}`,
			"{\n  \"address\": {\n    \"ipv4\": \"10.15.0.2\"\n  },\n  \"host-addressing\": {}\n}\n", "POST /v1/ipam?owner=router",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := startDaemon(t, map[string][]response{"POST /v1/ipam": {jsonResponse(201, tt.body)}})
			s.dependencies().exec(t, tt.args...).wants(t, cmdline.ExitOK, tt.stdout)
			s.wantRequests(t, tt.asked)
		})
	}
}

func TestRestoreAndRelease(t *testing.T) {
	for name, tt := range map[string]struct {
		args   []string
		stdout string
		asked  string
	}{
		"restore":                  {[]string{"restore", "10.15.0.2", "router"}, "restored 10.15.0.2 for router\n", "POST /v1/ipam/10.15.0.2?owner=router"},
		"restore in a pool":        {[]string{"restore", "10.15.0.2", "router", "--pool=blue"}, "restored 10.15.0.2 for router\n", "POST /v1/ipam/10.15.0.2?owner=router&pool=blue"},
		"restore with JSON":        {[]string{"restore", "fd00::2", "router", "-o=json"}, "{\n  \"ip\": \"fd00::2\",\n  \"owner\": \"router\",\n  \"pool\": \"default\"\n}\n", "POST /v1/ipam/fd00::2?owner=router"},
		"restore both families":    {[]string{"restore", "10.15.0.2", "router", "--also=fd00::2"}, "restored 10.15.0.2 for router\n", "POST /v1/ipam/10.15.0.2?also=fd00%3A%3A2&owner=router"},
		"release":                  {[]string{"release", "10.15.0.2"}, "released 10.15.0.2 of pool default\n", "DELETE /v1/ipam/10.15.0.2?pool=default"},
		"release in a pool":        {[]string{"release", "fd00::2", "--pool=blue"}, "released fd00::2 of pool blue\n", "DELETE /v1/ipam/fd00::2?pool=blue"},
		"release with JSON":        {[]string{"release", "10.15.0.2", "-o=json"}, "{\n  \"ip\": \"10.15.0.2\",\n  \"pool\": \"default\"\n}\n", "DELETE /v1/ipam/10.15.0.2?pool=default"},
		"release without delay":    {[]string{"release", "10.15.0.2", "--skip-release-delay"}, "released 10.15.0.2 of pool default\n", "DELETE /v1/ipam/10.15.0.2?pool=default skip-release-delay=true"},
		"release with --all=false": {[]string{"release", "10.15.0.2", "--all=false"}, "released 10.15.0.2 of pool default\n", "DELETE /v1/ipam/10.15.0.2?pool=default"},
	} {
		t.Run(name, func(t *testing.T) {
			yes := []response{{code: 200}}
			s := startDaemon(t, map[string][]response{
				"POST /v1/ipam/10.15.0.2": yes, "POST /v1/ipam/fd00::2": yes, "DELETE /v1/ipam/10.15.0.2": yes, "DELETE /v1/ipam/fd00::2": yes,
			})
			s.dependencies().exec(t, tt.args...).wants(t, cmdline.ExitOK, tt.stdout)
			s.wantRequests(t, tt.asked)
		})
	}
}

func TestRefusal(t *testing.T) {
	allocate, restore, release := []string{"allocate", "router"}, []string{"restore", "10.0.0.1", "router"}, []string{"release", "10.0.0.1", "--pool=blue"}
	for name, tt := range map[string]struct {
		args     []string
		response response
		words    []string
	}{
		"allocate: plugin failed":      {allocate, jsonResponse(502, `"no addresses left in pods"`), []string{"Error: allocate: no addresses left in pods\n"}},
		"allocate: retry later":        {allocate, response{code: 502, contentType: "application/json", retryAfter: "5", body: `"the queue is full"`}, []string{"the queue is full (try again in 5s)"}},
		"allocate: undocumented code":  {allocate, response{code: 418}, []string{"418", "I'm a teapot"}},
		"allocate: no address":         {allocate, jsonResponse(201, `{}`), []string{"without an address"}},
		"restore: another owner":       {restore, jsonResponse(409, `"router has it"`), []string{"Error: restore 10.0.0.1: router has it\n"}},
		"release: unknown address":     {release, jsonResponse(404, `"no such address"`), []string{"Error: release 10.0.0.1: no such address\n"}},
		"list: caller rejected":        {[]string{"list"}, response{code: 403}, []string{"list: ", "403"}},
		"status: failed":               {[]string{"status"}, response{code: 500}, []string{"500 Internal Server Error"}},
		"id: list rejected":            {[]string{"id", "router"}, response{code: 403}, []string{"id router: "}},
		"id: status failed":            {[]string{"id", "router", "--node-name=n"}, response{code: 500}, []string{"id router: ", "500"}},
		"release --all: list rejected": {[]string{"release", "--all", "--yes"}, response{code: 403}, []string{"release --all: "}},
	} {
		t.Run(name, func(t *testing.T) {
			all := []response{tt.response}
			s := startDaemon(t, map[string][]response{
				"POST /v1/ipam": all, "GET /v1/ipam": all, "GET /v1/healthz": all, "POST /v1/ipam/10.0.0.1": all, "DELETE /v1/ipam/10.0.0.1": all,
			})
			s.dependencies().exec(t, tt.args...).wants(t, cmdline.ExitFailed, "", tt.words...)
		})
	}
}

func TestNoDaemon(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "none.sock")
	other := socket + "2"
	for name, tt := range map[string]struct {
		args  []string
		names string
	}{
		"environment":     {[]string{"list"}, socket},
		"flag":            {[]string{"list", "-H", "unix://" + other}, other},
		"flag, bare path": {[]string{"status", "--host", other}, other},
		"release --all":   {[]string{"release", "--all", "--yes"}, socket},
		"id":              {[]string{"id", "router"}, socket},
		"allocate":        {[]string{"allocate", "router"}, socket},
		"restore":         {[]string{"restore", "10.0.0.1", "router"}, socket},
		"release":         {[]string{"release", "10.0.0.1"}, socket},
	} {
		t.Run(name, func(t *testing.T) {
			testDependencies(map[string]string{options.SocketEnv: socket}).exec(t, tt.args...).wants(t, cmdline.ExitFailed, "",
				"no daemon can be reached at "+tt.names+": no such file or directory; start delegated-ipam on this node, or correct the path\n")
		})
	}
}

// silentServer listens on a socket and never responds: without Accept the system connects clients.
func silentServer(t *testing.T) (socket string, l net.Listener) {
	t.Helper()
	socket = startDaemon(t, nil).socket + "2"
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return socket, l
}

func TestRequestTimeout(t *testing.T) {
	socket, _ := silentServer(t)
	d := testDependencies(map[string]string{options.SocketEnv: socket})
	d.requestLimit = time.Millisecond
	d.exec(t, "allocate", "router").wants(t, cmdline.ExitFailed, "", "Error: allocate: no answer from the daemon at "+socket+" within 1ms; it completes a request in progress: see its log\n")
}

func TestInterrupted(t *testing.T) {
	socket, l := silentServer(t)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		if c, err := l.Accept(); err == nil {
			defer c.Close()
			cancel()
			<-t.Context().Done()
		}
	}()
	testDependencies(map[string]string{options.SocketEnv: socket}).execContext(ctx, "allocate", "router").wants(t, cmdline.ExitFailed, "", "interrupted", "delegated-ipam list")
}

func TestInvalidJSON(t *testing.T) {
	s := startDaemon(t, map[string][]response{"GET /v1/ipam": {jsonResponse(200, "[{")}})
	s.dependencies().exec(t, "list").wants(t, cmdline.ExitFailed, "", "list: the daemon at "+s.socket, "see its log")
}

func TestForeignServer(t *testing.T) {
	agent := jsonResponse(200, `{"cilium":{"state":"Ok"},"ipam":{}}`)
	list, status := "GET /v1/ipam", "GET /v1/healthz"
	lists := []string{"list", "gc", "id router", "release --all --yes"}
	for name, tt := range map[string]struct {
		responses map[string][]response
		commands  []string
	}{
		"cilium-agent":           {map[string][]response{list: {jsonResponse(405, `{"code":405,"message":"method GET is not allowed, but [POST] are"}`)}, status: {agent}}, []string{"list", "gc", "id router", "status", "release --all --yes"}},
		"unknown path":           {map[string][]response{list: {jsonResponse(404, `{"code":404,"message":"path was not found"}`)}}, lists},
		"null for a list":        {map[string][]response{list: {jsonResponse(200, "null")}}, lists},
		"null for an attachment": {map[string][]response{list: {jsonResponse(200, "[null]")}}, lists},
		"null for an address":    {map[string][]response{list: {jsonResponse(200, `[{"addresses":[null]}]`)}}, lists},
		"null for a pool":        {map[string][]response{status: {jsonResponse(200, `{"delegated-ipam":{"pools":[null]}}`)}}, []string{"status"}},
		"null for a record":      {map[string][]response{status: {jsonResponse(200, `{"delegated-ipam":{"quarantined":[null]}}`)}}, []string{"status"}},
		"null for an option":     {map[string][]response{status: {jsonResponse(200, `{"delegated-ipam":{"options":[null]}}`)}}, []string{"status"}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, line := range tt.commands {
				s := startDaemon(t, tt.responses)
				s.dependencies().exec(t, strings.Fields(line)...).wants(t, cmdline.ExitFailed, "", s.socket+" is not a socket of delegated-ipam")
			}
		})
	}
}

// A user who is not a caller of a daemon with --health-details=authorized.
func TestStatusWithoutDetails(t *testing.T) {
	for _, line := range []string{"status", "list --summary", "release router"} {
		s := startDaemon(t, map[string][]response{"GET /v1/healthz": {jsonResponse(200, `{"cilium":{"state":"Ok"}}`)}, "GET /v1/ipam": {jsonResponse(200, "[]")}})
		s.dependencies().exec(t, strings.Fields(line)...).wants(t, cmdline.ExitFailed, "", s.socket, "it is Ok", "to authorized callers only")
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

func TestWriteError(t *testing.T) {
	for _, line := range []string{"allocate router", "allocate router -o json", "list", "list -o json", "status", "status -o json", "id router", "release 10.0.0.1", "version"} {
		s := startDaemon(t, map[string][]response{
			"POST /v1/ipam":            {jsonResponse(201, `{"address":{"ipv4":"10.0.0.1"}}`)},
			"GET /v1/ipam":             lists(heldBoth),
			"GET /v1/healthz":          {jsonResponse(200, read(t, "status-ready.json"))},
			"DELETE /v1/ipam/10.0.0.1": {{code: 200}},
		})
		var stderr strings.Builder
		if code := cmdline.Execute(t.Context(), s.dependencies().command(), strings.Fields(line), fullDisk{}, &stderr); code != cmdline.ExitFailed || !strings.Contains(stderr.String(), "no space left") {
			t.Errorf("%s: status %d, stderr %q; want 1 and the reason", line, code, stderr.String())
		}
	}
}
