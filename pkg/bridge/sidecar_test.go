package bridge

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/pkg/bridge/planner"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

// testSidecar answers every request as told, and remembers what was asked.
type testSidecar struct {
	code  int
	body  string
	retry string
	asked []string
}

func (s *testSidecar) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.asked = append(s.asked, r.Method+" "+r.URL.RequestURI())
	w.Header().Set("Content-Type", "application/json")
	if s.retry != "" {
		w.Header().Set("Retry-After", s.retry)
	}
	w.WriteHeader(s.code)
	fmt.Fprint(w, s.body)
}

// startSidecar serves on a socket until the test ends.
func startSidecar(t *testing.T, h http.Handler) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "dip-") // t.TempDir is too long for a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: l, Config: &http.Server{Handler: h}}
	server.Start()
	t.Cleanup(server.Close)
	return socket
}

func clientOf(t *testing.T, s *testSidecar) sidecarClient {
	t.Helper()
	return newSidecarClient(t, startSidecar(t, s))
}

func newSidecarClient(t *testing.T, socket string) sidecarClient {
	t.Helper()
	api, err := client.New(socket)
	if err != nil {
		t.Fatal(err)
	}
	return sidecarClient{api: api, pool: "blue", node: "worker"}
}

func TestSlotsAreWhatIsHandedOutToTheNode(t *testing.T) {
	const attachment = `{"owner":%q,"pool":%q,"state":%q,"lost":%v,"container-id":"c","created":"2026-01-01T00:00:00Z","changed":"2026-01-01T00:00:00Z",` +
		`"addresses":[{"family":"ipv4","ip":"10.0.0.1"},{"family":"ipv4","ip":"10.0.0.9"},{"family":"ipv6","ip":"fd00::9"}],"claims":[%s]}`
	v4, v6 := netip.MustParseAddr("10.0.0.9"), netip.MustParseAddr("fd00::9")
	tests := map[string]struct {
		json string
		want []planner.Slot
	}{
		"one that is held":                       {fmt.Sprintf(attachment, "ciliumnode-3", "blue", "held", false, `"ipv4","ipv6"`), []planner.Slot{{Number: 3, Addresses: []netip.Addr{v4, v6}, Held: true}}},
		"of which one family was given back":     {fmt.Sprintf(attachment, "ciliumnode-3", "blue", "held", false, `"ipv6"`), []planner.Slot{{Number: 3, Addresses: []netip.Addr{v6}, Held: true}}},
		"one that is lost":                       {fmt.Sprintf(attachment, "ciliumnode-3", "blue", "held", true, `"ipv4"`), []planner.Slot{{Number: 3, Addresses: []netip.Addr{v4}}}},
		"one that the plugin is yet to give":     {fmt.Sprintf(attachment, "ciliumnode-3", "blue", "adding", false, ``), []planner.Slot{{Number: 3}}},
		"not that of another owner":              {fmt.Sprintf(attachment, "router", "blue", "held", false, `"ipv4"`), nil},
		"not that of another spelling":           {fmt.Sprintf(attachment, "ciliumnode-03", "blue", "held", false, `"ipv4"`), nil},
		"not that of another pool of the node's": {fmt.Sprintf(attachment, "ciliumnode-3", "default", "held", false, `"ipv4"`), nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := clientOf(t, &testSidecar{code: 200, body: "[" + tt.json + "]"}).slots(t.Context())
			if err != nil || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %+v, %v; want %+v", got, err, tt.want)
			}
		})
	}
	t.Run("an address that is none is an error", func(t *testing.T) {
		s := &testSidecar{code: 200, body: `[{"owner":"ciliumnode-1","pool":"blue","state":"held","addresses":[{"family":"ipv4","ip":"x"}],"claims":["ipv4"]}]`}
		if got, err := clientOf(t, s).slots(t.Context()); err == nil {
			t.Errorf("got %v; want an error", got)
		}
	})
}

func TestWhatTheSidecarAnswersMeans(t *testing.T) {
	acquire := func(t *testing.T, s sidecarClient) error { return s.acquire(t.Context(), 3) }
	restore := func(t *testing.T, s sidecarClient) error { return s.restore(t.Context(), 3, ip(9)) }
	free := func(t *testing.T, s sidecarClient) error { return s.release(t.Context(), ip(9)) }
	list := func(t *testing.T, s sidecarClient) error { _, err := s.slots(t.Context()); return err }
	tests := map[string]struct {
		ask    func(t *testing.T, s sidecarClient) error
		answer testSidecar
		asked  string
		want   error
		reason planner.Reason
	}{
		"an address":                 {acquire, testSidecar{code: 201, body: `{"address":{"ipv4":"10.0.0.9"}}`}, "POST /v1/ipam?owner=ciliumnode-3&pool=blue", nil, ""},
		"no address":                 {acquire, testSidecar{code: 502, body: `"no addresses"`}, "POST /v1/ipam?owner=ciliumnode-3&pool=blue", errExhausted, ""},
		"a full queue":               {acquire, testSidecar{code: 502, body: `"full"`, retry: "5"}, "", nil, reasonSidecarUnavailable},
		"an owner that may not":      {acquire, testSidecar{code: 403}, "", nil, reasonOwnerNotAdmitted},
		"restored":                   {restore, testSidecar{code: 200}, "POST /v1/ipam/10.0.0.9?owner=ciliumnode-3&pool=blue", nil, ""},
		"not restored":               {restore, testSidecar{code: 500, body: `"another"`}, "", errRefused, ""},
		"somebody else's":            {restore, testSidecar{code: 409}, "", errRefused, ""},
		"no restore for this caller": {restore, testSidecar{code: 403}, "", nil, reasonOwnerNotAdmitted},
		"a restore that must wait":   {restore, testSidecar{code: 500, body: `"full"`, retry: "5"}, "", nil, reasonSidecarUnavailable},
		"given back":                 {free, testSidecar{code: 200}, "DELETE /v1/ipam/10.0.0.9?pool=blue", nil, ""},
		"given back before":          {free, testSidecar{code: 404}, "", nil, ""},
		"not given back":             {free, testSidecar{code: 500, body: `"DEL failed"`}, "", nil, reasonSidecarUnavailable},
		"no list":                    {list, testSidecar{code: 404}, "GET /v1/ipam", nil, reasonSidecarUnavailable},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := tt.ask(t, clientOf(t, &tt.answer))
			if tt.asked != "" && (len(tt.answer.asked) != 1 || tt.answer.asked[0] != tt.asked) {
				t.Errorf("asked %q; want %q", tt.answer.asked, tt.asked)
			}
			wantTrouble(t, err, tt.reason)
			if tt.reason == "" && !errors.Is(err, tt.want) {
				t.Errorf("got %v; want %v", err, tt.want)
			}
		})
	}
	t.Run("nobody there", func(t *testing.T) {
		wantTrouble(t, list(t, newSidecarClient(t, filepath.Join(t.TempDir(), "none"))), reasonSidecarUnavailable)
	})
}

func wantTrouble(t *testing.T, err error, reason planner.Reason) {
	t.Helper()
	var got *reconcileError
	errors.As(err, &got)
	if reason == "" && got == nil {
		return
	}
	if got == nil || got.reason != reason {
		t.Errorf("got %v; want the reason %q", err, reason)
	}
}

func TestTheSidecarOfAnotherNodeIsRefused(t *testing.T) {
	const status = `{"delegated-ipam":{"node-name":%q,"attachments":{},"pools":[],"counters":{}}}`
	tests := map[string]struct {
		body   string
		reason planner.Reason
	}{
		"of this node":             {fmt.Sprintf(status, "worker"), ""},
		"of another":               {fmt.Sprintf(status, "other"), reasonNodeMismatch},
		"of one that says no name": {`{"delegated-ipam":{}}`, ""},
		"of another program":       {`{"cilium":{"state":"Ok"}}`, reasonSidecarUnavailable},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			wantTrouble(t, clientOf(t, &testSidecar{code: 200, body: tt.body}).checkNode(t.Context()), tt.reason)
		})
	}
	t.Run("that does not answer", func(t *testing.T) {
		wantTrouble(t, clientOf(t, &testSidecar{code: 500}).checkNode(t.Context()), reasonSidecarUnavailable)
	})
}
