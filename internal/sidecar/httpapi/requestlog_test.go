package httpapi_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/engine/protocol"
)

func TestRequestLog(t *testing.T) {
	shared := newFixture(t, dualStack, &models.DelegatedIPAMStatus{})
	for _, tt := range []struct {
		method, target string
		level          logrus.Level
		want           logrus.Fields
	}{
		{http.MethodPost, "/v1/ipam?family=ipv4", logrus.InfoLevel, logrus.Fields{
			"owner": "health", "poolName": "default", "family": "ipv4", "code": 201,
			"containerID": "cilium-agent-health-0123456789abcdef", "request": "POST /v1/ipam",
		}},
		{http.MethodPost, "/v1/ipam/10.1.2.3?owner=health", logrus.InfoLevel, logrus.Fields{"owner": "health", "poolName": "default", "code": 200}},
		{http.MethodDelete, "/v1/ipam/10.1.2.3?pool=blue", logrus.InfoLevel, logrus.Fields{"poolName": "blue", "code": 200, "request": "DELETE /v1/ipam/10.1.2.3"}},
		{http.MethodGet, "/v1/healthz", logrus.DebugLevel, logrus.Fields{"code": 200}},
		{http.MethodGet, "/v1/none", logrus.InfoLevel, logrus.Fields{"code": 404}},
	} {
		t.Run(tt.method+" "+tt.target, func(t *testing.T) {
			f := shared.reset()
			f.engine.got = held("health")
			f.send(t, tt.method, tt.target)
			if n := len(f.log.AllEntries()); n != 1 {
				t.Fatalf("%d log lines; want one", n)
			}
			line := f.logLine(t)
			if line.Level != tt.level {
				t.Errorf("logged at %s; want %s", line.Level, tt.level)
			}
			for key, want := range tt.want {
				if line.Data[key] != want {
					t.Errorf("log field %s is %v; want %v", key, line.Data[key], want)
				}
			}
		})
	}
}

func TestRequestIDLog(t *testing.T) {
	f := newFixture(t, dualStack, &models.DelegatedIPAMStatus{})
	f.engine.panic = "out of cheese"
	f.send(t, http.MethodPost, "/v1/ipam?owner=health", "X-Request-ID", "abc")
	lines := f.log.AllEntries()
	if len(lines) != 2 {
		t.Fatalf("%d log lines; want one for the panic and one for the request", len(lines))
	}
	for _, line := range lines {
		if got := line.Data["requestID"]; got != "abc" {
			t.Errorf("line %q has the request ID %v; want abc", line.Message, got)
		}
	}
}

func TestLogLevel(t *testing.T) {
	f := newFixture(t, dualStack, &models.DelegatedIPAMStatus{})
	f.logger.SetLevel(logrus.InfoLevel)
	f.send(t, http.MethodGet, "/v1/healthz")
	if n := len(f.log.AllEntries()); n != 0 {
		t.Errorf("%d log lines of a successful GET at level info; want none", n)
	}
}

func TestErrorLog(t *testing.T) {
	f := newFixture(t, dualStack, &models.DelegatedIPAMStatus{})
	f.engine.err = &protocol.Error{Kind: protocol.Forbidden, Err: errors.New("--owners does not admit it")}
	wantCode(t, f.send(t, http.MethodPost, "/v1/ipam?owner=other&owner=health&pool=blue&family=ipv4"), http.StatusForbidden)
	line := f.logLine(t)
	for key, want := range map[string]any{
		"owner": "health", "poolName": "blue", "family": "ipv4", "code": 403,
		"error": "--owners does not admit it", "kind": "forbidden",
	} {
		if line.Data[key] != want {
			t.Errorf("log field %s is %v; want %v", key, line.Data[key], want)
		}
	}
}

// onLine is a hook that is called for each log line.
type onLine func()

func (onLine) Levels() []logrus.Level     { return logrus.AllLevels }
func (f onLine) Fire(*logrus.Entry) error { f(); return nil }

func TestResponseBeforeLog(t *testing.T) {
	for name, c := range map[string]struct {
		method, target string
		code           int
	}{
		"body":    {http.MethodPost, "/v1/ipam?owner=health", http.StatusCreated},
		"no body": {http.MethodDelete, "/v1/ipam/10.1.2.3", http.StatusOK},
		"error":   {http.MethodPost, "/v1/ipam?owner=%zz", http.StatusUnprocessableEntity},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, dualStack, &models.DelegatedIPAMStatus{})
			f.engine.got = held("health")
			rec := httptest.NewRecorder()
			lines := 0
			f.logger.AddHook(onLine(func() {
				lines++
				if !rec.Flushed || rec.Code != c.code || rec.Header().Get("Content-Length") != strconv.Itoa(rec.Body.Len()) {
					t.Errorf("when the line is logged the response is %d, flushed: %t, %v, %d bytes", rec.Code, rec.Flushed, rec.Header(), rec.Body.Len())
				}
			}))
			f.handler.ServeHTTP(rec, httptest.NewRequest(c.method, c.target, nil))
			if lines != 1 {
				t.Errorf("%d log lines; want one", lines)
			}
		})
	}
}

func TestLongRequestLog(t *testing.T) {
	f := newFixture(t, dualStack, &models.DelegatedIPAMStatus{})
	long := strings.Repeat("x", 8<<10)
	for _, target := range []string{"/v1/" + long, "/v1/ipam/" + long, "/v1/none?owner=" + long + "&pool=" + long, "/v1/ipam?%zz" + long, "/v1/ipam/10.0.0.1?pool=" + long} {
		f.reset()
		f.send(t, http.MethodPost, target)
		size := 0
		for _, value := range f.logLine(t).Data {
			size += len(fmt.Sprint(value))
		}
		if size > 6<<10 {
			t.Errorf("%.30s: the fields of the log line have %d bytes", target, size)
		}
	}
}

// sendID returns the ID in the context of a request with these IDs, and the ID in its response.
func (f *fixture) sendID(t *testing.T, ids ...string) (inContext, inResponse string) {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/v1/ipam?owner=health", nil)
	for _, id := range ids {
		r.Header.Add("X-Request-ID", id)
	}
	values := f.do(t, r).header.Values("X-Request-Id")
	if len(values) != 1 {
		t.Fatalf("the response has the IDs %q; want one", values)
	}
	return logging.RequestID(f.engine.ctx), values[0]
}

func TestCallerID(t *testing.T) {
	f := newFixture(t, dualStack, &models.DelegatedIPAMStatus{})
	for _, id := range []string{"a", "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "A_z.9", strings.Repeat("x", 64)} {
		if inContext, inResponse := f.sendID(t, id); inContext != id || inResponse != id {
			t.Errorf("the context has %q, the response %q; want %q", inContext, inResponse, id)
		}
	}
}

func TestGeneratedID(t *testing.T) {
	f := newFixture(t, dualStack, &models.DelegatedIPAMStatus{})
	seen := map[string]bool{}
	for name, ids := range map[string][]string{
		"none": nil, "empty": {""}, "too long": {strings.Repeat("x", 65)}, "space": {"a b"}, "control": {"a\x1b"},
		"not ASCII": {"é"}, "quote": {`a"b`}, "two": {"a", "b"}, "line": {"a\nb"}, "line end": {"a\n"},
	} {
		inContext, inResponse := f.sendID(t, ids...)
		if inContext != inResponse || len(inContext) < 20 || seen[inContext] {
			t.Errorf("%s: the context has %q, the response %q; want a new random ID", name, inContext, inResponse)
		}
		seen[inContext] = true
	}
}
