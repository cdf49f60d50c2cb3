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
	"strconv"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/planner"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
	"github.com/delegated-ipam/delegated-ipam/test/scenario"
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

// TestDaemon runs the cases of testdata/daemon.
func TestDaemon(t *testing.T) {
	scenario.Each(t, "testdata/daemon/*.txt", func(t *testing.T, lines []string) {
		var server fakeServer
		var err error
		for _, line := range lines {
			command, rest, _ := strings.Cut(line, " ")
			switch words := strings.Fields(rest); command {
			case "response":
				code, body, _ := strings.Cut(rest, " ")
				server.code, err = strconv.Atoi(code)
				check.Must(t, err)
				if text, retry := strings.CutPrefix(body, "retry "); retry {
					server.retryAfter, body = "5", text
				}
				if verb, failed := strings.CutSuffix(body, " failed"); failed {
					body = pluginError(t, verb)
				}
				// The server has one response to each request: status and configuration.
				server.body = strings.Replace(body, `{"delegated-ipam"`, `{"status":{"addressing":{"ipv4":{"enabled":true},"ipv6":{}}},"delegated-ipam"`, 1)
			case "call":
				err = callDaemon(t, clientOf(t, &server), words[0], words[1:])
			case "requests":
				check.Equal(t, command, strings.Join(server.requests, " "), rest)
			case "reason":
				wantReason(t, err, rest)
				check.True(t, (err == nil) == (rest == ""), "got %v", err)
			}
		}
	})
	err := callDaemon(t, newDaemonClient(t, filepath.Join(t.TempDir(), "none")), "list", nil)
	wantReason(t, err, reasonDaemonUnavailable)
	check.Error(t, err, "none: no such file or directory; start delegated-ipam on this node")
}

func callDaemon(t *testing.T, s daemonClient, name string, args []string) (err error) {
	t.Helper()
	switch name {
	case "acquire":
		_, err = s.acquire(t.Context(), 3)
	case "restore":
		var also netip.Addr
		if len(args) > 1 {
			also = netip.MustParseAddr(args[1])
		}
		err = s.restore(t.Context(), 3, netip.MustParseAddr(args[0]), also)
	case "release":
		err = s.release(t.Context(), 3, ip(9))
	case "list":
		_, err = s.slots(t.Context(), nil)
	case "check-node":
		var got served
		if got, err = s.checkNode(t.Context()); err == nil {
			check.Equal(t, "families", got.families, []string{"ipv4"})
		}
	}
	return err
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
