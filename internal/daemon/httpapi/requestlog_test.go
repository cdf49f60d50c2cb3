package httpapi_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

func TestRequestLog(t *testing.T) {
	shared := newDual(t)
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
			check.Equal(t, "level", line.Level, tt.level)
			wantFields(t, line, tt.want)
		})
	}
}

func TestRequestIDLog(t *testing.T) {
	f := newDual(t)
	f.engine.panic = "out of cheese"
	f.send(t, http.MethodPost, "/v1/ipam?owner=health", "X-Request-ID", "abc")
	lines := f.log.AllEntries()
	if len(lines) != 2 {
		t.Fatalf("%d log lines; want one for the panic and one for the request", len(lines))
	}
	for _, line := range lines {
		wantFields(t, line, logrus.Fields{"requestID": "abc"})
	}
}

func TestErrorLog(t *testing.T) {
	f := newDual(t)
	f.engine.err = &attachment.Error{Kind: attachment.Forbidden, Err: errors.New("--owners does not admit it")}
	wantCode(t, f.send(t, http.MethodPost, "/v1/ipam?owner=other&owner=health&pool=blue&family=ipv4"), http.StatusForbidden)
	line := f.logLine(t)
	wantFields(t, line, logrus.Fields{
		"owner": "health", "poolName": "blue", "family": "ipv4", "code": 403,
		"error": "--owners does not admit it", "kind": "forbidden",
	})
}

func wantFields(t *testing.T, line *logrus.Entry, fields logrus.Fields) {
	t.Helper()
	for key, want := range fields {
		check.Equal(t, "log field "+key, line.Data[key], want)
	}
}

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
			f := newDual(t)
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
			check.Equal(t, "log lines", lines, 1)
		})
	}
}

func TestLongRequestLog(t *testing.T) {
	f := newDual(t)
	long := strings.Repeat("x", 8<<10)
	for _, target := range []string{"/v1/" + long, "/v1/ipam/" + long, "/v1/none?owner=" + long + "&pool=" + long, "/v1/ipam?%zz" + long, "/v1/ipam/10.0.0.1?pool=" + long} {
		f.reset()
		f.send(t, http.MethodPost, target)
		size := 0
		for _, value := range f.logLine(t).Data {
			size += len(fmt.Sprint(value))
		}
		check.True(t, size <= 6<<10, "%.30s: the fields of the log line have %d bytes", target, size)
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

// The ID of a caller is used if it is valid; otherwise the request gets a new random one.
func TestRequestID(t *testing.T) {
	f := newDual(t)
	for _, id := range []string{"a", "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "A_z.9", strings.Repeat("x", 64)} {
		inContext, inResponse := f.sendID(t, id)
		check.True(t, inContext == id && inResponse == id, "the context has %q, the response %q; want %q", inContext, inResponse, id)
	}
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

func TestOperation(t *testing.T) {
	f := newDual(t)
	f.handler.Metrics = http.NotFoundHandler()
	for request, want := range map[string]string{
		"POST /v1/ipam?owner=x":        "POST /v1/ipam 201",
		"POST /v1/ipam/10.0.0.1":       "POST /v1/ipam/{ip} 200",
		"DELETE /v1/ipam/fd00::1":      "DELETE /v1/ipam/{ip} 200",
		"GET /v1/healthz":              "GET /v1/healthz 200",
		"DELETE /v1/ipam?owner=x":      " 405",
		"GET /v1/ipam/10.0.0.1":        " 405",
		"GET /v1/nothing":              " 404",
		"GET /":                        " 404",
		"BREW /v1/ipam":                " 405",
		"post /v1/ipam":                " 405",
		"get /v1/nothing":              " 404",
		"GET /v1/swagger.json":         " 404",
		"Get /v1/healthz":              " 405",
		"DELETE /v1/ipam/10.0.0.1/etc": " 404",
		"GET /metrics":                 "",
		"POST /metrics":                " 404",
	} {
		method, path, _ := strings.Cut(request, " ")
		f.reset()
		rec := httptest.NewRecorder()
		f.handler.ServeHTTP(rec, httptest.NewRequest(method, path, http.NoBody))
		if got := strings.Join(f.done, ","); got != want {
			t.Errorf("%s: counted as %q; want %q", request, got, want)
		}
		check.Equal(t, request+" has the header Allow", rec.Header().Get("Allow") != "", want == " 405")
		if operation, _, _ := strings.Cut(want, " 2"); strings.Contains(want, " 2") && f.handler.Operations()[operation] == nil {
			t.Errorf("%s is not in Operations", operation)
		}
	}
	if codes := f.handler.Operations()["POST /v1/ipam"]; !slices.Contains(codes, http.StatusCreated) || !slices.Contains(codes, http.StatusBadGateway) || !slices.IsSorted(codes) {
		t.Errorf("the codes of POST /v1/ipam are %v", codes)
	}
}

// sending calls a function before the header of a response is sent.
type sending struct {
	http.ResponseWriter
	before func()
}

func (s sending) WriteHeader(code int) {
	s.before()
	s.ResponseWriter.WriteHeader(code)
}

func TestCountedBeforeResponse(t *testing.T) {
	f := newDual(t)
	sent := false
	w := sending{httptest.NewRecorder(), func() {
		sent = true
		check.Equal(t, "counted", f.done, []string{"GET /v1/config 200"})
	}}
	f.handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/config", http.NoBody))
	check.True(t, sent, "there was no response")
}

// Refused requests of callers cannot fill the log.
//
//evidence:operate/security many requests that get a code of 400 to 499, to fill the log
func TestRefusedRequestLog(t *testing.T) {
	const each = 100
	f := newDual(t)
	f.engine.err = &attachment.Error{Kind: attachment.Forbidden, Err: errors.New("--owners does not admit it")}
	f.handler.Callers.UIDs = []int{70002}
	requests := map[string]int{
		"POST /v1/ipam?family=x": 422, "POST /v1/ipam?owner=x": 403, "POST /v1/ipam/10.1.2.3?owner=x": 403, "POST /v1/ipam/x?owner=x": 400,
		"GET /v1/none": 404, "BREW /v1/ipam": 405,
	}
	send := func(request string, want int) {
		method, target, _ := strings.Cut(request, " ")
		w := httptest.NewRecorder()
		f.handler.ServeHTTP(w, httptest.NewRequest(method, target, nil))
		check.Equal(t, request, w.Code, want)
	}
	for range each {
		for request, code := range requests {
			for _, f.peer.UID = range []int{0, 70002} {
				send(request, code)
			}
		}
	}
	f.refusals.Stop()
	got := map[string]int{}
	for _, line := range f.log.AllEntries() {
		got[fmt.Sprintf("%v %v, user %v: %v", line.Data["request"], line.Data["code"], line.Data["peerUID"], line.Data["repeated"])]++
	}
	want := map[string]int{}
	for request, code := range requests {
		request, _, _ = strings.Cut(request, "?")
		for _, uid := range []int{0, 70002} {
			for _, repeated := range []any{nil, each - 1} {
				want[fmt.Sprintf("%v %v, user %v: %v", request, code, uid, repeated)] = 1
			}
		}
	}
	check.Equal(t, "lines", got, want)

	f.reset()
	f.engine.err = errors.New("the plugin failed")
	for range each {
		send("POST /v1/ipam", 502)
	}
	check.Equal(t, "lines of failures", len(f.log.AllEntries()), each)
}
