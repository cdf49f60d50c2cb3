package bridge

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/planner"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

// fakeServer has one response to every request, and records the requests.
type fakeServer struct {
	code       int
	body       string
	retryAfter string
	requests   []string
}

func (s *fakeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.requests = append(s.requests, r.Method+" "+r.URL.RequestURI())
	w.Header().Set("Content-Type", "application/json")
	if s.retryAfter != "" {
		w.Header().Set("Retry-After", s.retryAfter)
	}
	w.WriteHeader(s.code)
	fmt.Fprint(w, s.body)
}

// serveUnix serves on a new socket until the test ends.
func serveUnix(t *testing.T, h http.Handler) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "dip-") // t.TempDir is too long for a socket's path
	check.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	check.Must(t, err)
	server := &httptest.Server{Listener: l, Config: &http.Server{Handler: h}}
	server.Start()
	t.Cleanup(server.Close)
	return socket
}

func clientOf(t *testing.T, s *fakeServer) daemonClient {
	t.Helper()
	return newDaemonClient(t, serveUnix(t, s))
}

func newDaemonClient(t *testing.T, socket string) daemonClient {
	t.Helper()
	api, err := client.New(socket)
	check.Must(t, err)
	return daemonClient{api: api, pool: "blue", node: "worker"}
}

func TestSlots(t *testing.T) {
	const attachment = `{"owner":%q,"pool":%q,"state":%q,"lost":%v,"container-id":"c","created":"2026-01-01T00:00:00Z","changed":"2026-01-01T00:00:00Z",` +
		`"addresses":[{"family":"ipv4","ip":"10.0.0.1"},{"family":"ipv4","ip":"10.0.0.9"},{"family":"ipv6","ip":"fd00::9"}],"claims":[%s]}`
	inRange := func(text string) string {
		return strings.Replace(fmt.Sprintf(attachment, "ciliumnode-3", "blue", "held", false, `"ipv4"`), `"lost"`, fmt.Sprintf(`"range":%q,"lost"`, text), 1)
	}
	v4, v6 := netip.MustParseAddr("10.0.0.9"), netip.MustParseAddr("fd00::9")
	for name, tt := range map[string]struct {
		json string
		want []planner.Slot
	}{
		"held":               {fmt.Sprintf(attachment, "ciliumnode-3", "blue", "held", false, `"ipv4","ipv6"`), []planner.Slot{{Number: 3, Addresses: []netip.Addr{v4, v6}, Held: true}}},
		"one family claimed": {fmt.Sprintf(attachment, "ciliumnode-3", "blue", "held", false, `"ipv6"`), []planner.Slot{{Number: 3, Addresses: []netip.Addr{v6}, Held: true, Unclaimed: []netip.Addr{netip.MustParseAddr("10.0.0.1"), v4}}}},
		"lost":               {fmt.Sprintf(attachment, "ciliumnode-3", "blue", "held", true, `"ipv4"`), []planner.Slot{{Number: 3, Addresses: []netip.Addr{v4}}}},
		"outside the ranges": {inRange("outside"), []planner.Slot{{Number: 3, Addresses: []netip.Addr{v4}, Held: true, Outside: true}}},
		"no configuration":   {inRange("unconfigured"), []planner.Slot{{Number: 3, Addresses: []netip.Addr{v4}, Held: true, Unconfigured: true}}},
		"adding":             {fmt.Sprintf(attachment, "ciliumnode-3", "blue", "adding", false, ``), []planner.Slot{{Number: 3, Unclaimed: []netip.Addr{netip.MustParseAddr("10.0.0.1"), v4}}}},
		"another owner":      {fmt.Sprintf(attachment, "router", "blue", "held", false, `"ipv4"`), nil},
		"another spelling":   {fmt.Sprintf(attachment, "ciliumnode-03", "blue", "held", false, `"ipv4"`), nil},
		"another pool":       {fmt.Sprintf(attachment, "ciliumnode-3", "default", "held", false, `"ipv4"`), nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := clientOf(t, &fakeServer{code: 200, body: "[" + tt.json + "]"}).slots(t.Context(), []string{"ipv4"})
			if err != nil || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %+v, %v; want %+v", got, err, tt.want)
			}
		})
	}
	t.Run("malformed address", func(t *testing.T) {
		s := &fakeServer{code: 200, body: `[{"owner":"ciliumnode-1","pool":"blue","state":"held","addresses":[{"family":"ipv4","ip":"x"}],"claims":["ipv4"]}]`}
		if got, err := clientOf(t, s).slots(t.Context(), nil); err == nil {
			t.Errorf("got %v; want an error", got)
		}
	})
}

// pluginError returns the response to a request whose plugin call failed.
func pluginError(t *testing.T, verb string) string {
	t.Helper()
	text, err := json.Marshal((&call.Error{Verb: verb, Plugin: "whereabouts", ContainerID: "id", Outcome: call.Refused, Msg: "etcd is not reachable"}).Error())
	check.Must(t, err)
	return string(text)
}

func TestDaemonErrors(t *testing.T) {
	acquire := func(t *testing.T, s daemonClient) error {
		_, err := s.acquire(t.Context(), 3)
		return err
	}
	restore := func(t *testing.T, s daemonClient) error { return s.restore(t.Context(), 3, ip(9), netip.Addr{}) }
	restoreBoth := func(t *testing.T, s daemonClient) error {
		return s.restore(t.Context(), 3, ip(9), netip.MustParseAddr("fd00::9"))
	}
	release := func(t *testing.T, s daemonClient) error { return s.release(t.Context(), ip(9)) }
	list := func(t *testing.T, s daemonClient) error { _, err := s.slots(t.Context(), nil); return err }
	for name, tt := range map[string]struct {
		call    func(t *testing.T, s daemonClient) error
		server  fakeServer
		request string
		reason  string
	}{
		"acquired":           {acquire, fakeServer{code: 201, body: `{"address":{"ipv4":"10.0.0.9"}}`}, "POST /v1/ipam?owner=ciliumnode-3&pool=blue", ""},
		"exhausted":          {acquire, fakeServer{code: 502, body: `"no IP addresses available in range set: 10.0.0.1-10.0.0.9"`}, "POST /v1/ipam?owner=ciliumnode-3&pool=blue", reasonPoolExhausted},
		"plugin failed":      {acquire, fakeServer{code: 502, body: pluginError(t, call.VerbAdd)}, "", reasonPluginFailed},
		"disk full":          {acquire, fakeServer{code: 502, body: `"owner \"ciliumnode-3\": the journal could not be written: no space left on device; the ADD was not run"`}, "", reasonRequestRefused},
		"no configuration":   {acquire, fakeServer{code: 502, body: `"no CNI configuration in directory /etc/cni/net.d"`}, "", reasonRequestRefused},
		"queue full":         {acquire, fakeServer{code: 502, body: `"no IP addresses available"`, retryAfter: "5"}, "", reasonDaemonBusy},
		"owner forbidden":    {acquire, fakeServer{code: 403}, "", reasonOwnerNotAdmitted},
		"restored":           {restore, fakeServer{code: 200}, "POST /v1/ipam/10.0.0.9?owner=ciliumnode-3&pool=blue", ""},
		"restored, IPv6 too": {restoreBoth, fakeServer{code: 200}, "POST /v1/ipam/10.0.0.9?also=fd00%3A%3A9&owner=ciliumnode-3&pool=blue", ""},
		"not restored":       {restore, fakeServer{code: 500, body: `"another"`}, "", reasonRequestRefused},
		"another owner":      {restore, fakeServer{code: 409}, "", reasonRequestRefused},
		"restore forbidden":  {restore, fakeServer{code: 403}, "", reasonOwnerNotAdmitted},
		"restore later":      {restore, fakeServer{code: 500, body: `"full"`, retryAfter: "5"}, "", reasonDaemonBusy},
		"released":           {release, fakeServer{code: 200}, "DELETE /v1/ipam/10.0.0.9?pool=blue", ""},
		"released before":    {release, fakeServer{code: 404}, "", ""},
		"release failed":     {release, fakeServer{code: 500, body: pluginError(t, call.VerbDel)}, "", reasonPluginFailed},
		"no list":            {list, fakeServer{code: 404}, "GET /v1/ipam", reasonDaemonUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			err := tt.call(t, clientOf(t, &tt.server))
			if tt.request != "" && (len(tt.server.requests) != 1 || tt.server.requests[0] != tt.request) {
				t.Errorf("sent %q; want %q", tt.server.requests, tt.request)
			}
			wantReason(t, err, tt.reason)
			if tt.reason == "" && err != nil {
				t.Errorf("got %v; want none", err)
			}
		})
	}
	t.Run("no server", func(t *testing.T) {
		err := list(t, newDaemonClient(t, filepath.Join(t.TempDir(), "none")))
		wantReason(t, err, reasonDaemonUnavailable)
		if want := "none: no such file or directory; start delegated-ipam on this node"; !strings.Contains(err.Error(), want) {
			t.Errorf("got %q; want %q in it", err, want)
		}
	})
}

// wantReason checks the reason of a failure; an empty one wants none.
func wantReason(t *testing.T, err error, reason string) {
	t.Helper()
	var failed *failure
	if is := errors.As(err, &failed); is != (reason != "") || is && failed.reason != reason {
		t.Errorf("got %v; want the reason %q", err, reason)
	}
}

func TestAcquire(t *testing.T) {
	got, err := clientOf(t, &fakeServer{code: 201, body: `{"address":{"ipv4":"10.0.0.9","ipv6":"fd00::9"}}`}).acquire(t.Context(), 3)
	want := planner.Slot{Number: 3, Addresses: []netip.Addr{ip(9), netip.MustParseAddr("fd00::9")}, Held: true}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}

func TestCheckNode(t *testing.T) {
	const status = `{"delegated-ipam":{"node-name":%q,"attachments":{},"pools":[],"counters":{}}}`
	for name, tt := range map[string]struct {
		server fakeServer
		reason string
	}{
		"this node":       {fakeServer{code: 200, body: fmt.Sprintf(status, "worker")}, ""},
		"another node":    {fakeServer{code: 200, body: fmt.Sprintf(status, "other")}, reasonNodeMismatch},
		"its pool":        {fakeServer{code: 200, body: `{"delegated-ipam":{"pools":[{"pool":"default"},{"pool":"blue"}]}}`}, ""},
		"other pools":     {fakeServer{code: 200, body: `{"delegated-ipam":{"pools":[{"pool":"default"},{"pool":"red"}]}}`}, reasonNodeMismatch},
		"no name":         {fakeServer{code: 200, body: `{"delegated-ipam":{}}`}, ""},
		"another program": {fakeServer{code: 200, body: `{"cilium":{"state":"Ok"}}`}, reasonDaemonUnavailable},
		"failure":         {fakeServer{code: 500}, reasonDaemonUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			// The server has one response to each request: status and configuration.
			tt.server.body = strings.Replace(tt.server.body, `{"delegated-ipam"`, `{"status":{"addressing":{"ipv4":{"enabled":true},"ipv6":{}}},"delegated-ipam"`, 1)
			got, err := clientOf(t, &tt.server).checkNode(t.Context())
			wantReason(t, err, tt.reason)
			if err == nil && !slices.Equal(got.families, []string{"ipv4"}) {
				t.Errorf("the families are %v", got.families)
			}
		})
	}
}
