package restapi_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/pkg/attachment"
	"github.com/delegated-ipam/delegated-ipam/pkg/restapi"
)

func TestAPanicIsAnsweredAndLogged(t *testing.T) {
	f := newFixture(t, dualStack, restapi.Report{})
	f.engine.panic = "something broke"
	wantCode(t, f.ask(t, http.MethodPost, "/v1/ipam?owner=health"), http.StatusInternalServerError)
	var stack, line *logrus.Entry
	for _, e := range f.log.AllEntries() {
		if e.Data["stacktrace"] != nil {
			stack = e
		} else {
			line = e
		}
	}
	if stack == nil || !strings.Contains(stack.Data["stacktrace"].(string), "Allocate") {
		t.Error("the log does not say where it broke")
	}
	if line == nil || line.Level != logrus.WarnLevel || line.Data["error"] != "something broke" || line.Data["code"] != 500 {
		t.Errorf("the request's log line is %+v", line)
	}
}

// goneWriter is a connection whose client has hung up.
type goneWriter struct{ *httptest.ResponseRecorder }

func (goneWriter) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestAClientThatHangsUpIsNoFailureOfOurs(t *testing.T) {
	f := newFixture(t, dualStack, restapi.Report{})
	f.engine.got = held("health")
	ctx, hangUp := context.WithCancel(t.Context())
	hangUp()
	r := httptest.NewRequest(http.MethodPost, "/v1/ipam?owner=health", nil).WithContext(ctx)
	f.handler.ServeHTTP(goneWriter{httptest.NewRecorder()}, r)
	if n := len(f.log.AllEntries()); n != 1 {
		t.Errorf("%d log lines; expected the request's own only", n)
	}
	line := f.outcome(t)
	if text, _ := line.Data["error"].(string); !strings.Contains(text, "client was gone") || line.Level != logrus.InfoLevel {
		t.Errorf("the request's log line is %v %+v", line.Level, line.Data)
	}
}

func TestAnAnswerThatHasBegunIsNotFollowedByAnother(t *testing.T) {
	for name, c := range map[string]struct {
		method, target string
		code           int
	}{
		"a short one": {http.MethodPost, "/v1/ipam?owner=health", http.StatusCreated},
		"a long one":  {http.MethodGet, "/v1/ipam", http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, dualStack, restapi.Report{})
			f.engine.got = held("health")
			f.engine.all = slices.Repeat([]attachment.Attachment{f.engine.got}, 100)
			rec := httptest.NewRecorder()
			f.handler.ServeHTTP(goneWriter{rec}, httptest.NewRequest(c.method, c.target, nil))
			if rec.Code != c.code {
				t.Errorf("the status code became %d", rec.Code)
			}
			if line := f.outcome(t); line.Data["code"] != c.code || !strings.Contains(fmt.Sprint(line.Data["error"]), "broken pipe") {
				t.Errorf("the request's log line is %+v", line.Data)
			}
		})
	}
}

func TestTheEngineSeesThatTheClientHangsUp(t *testing.T) {
	shared := newFixture(t, dualStack, restapi.Report{})
	for _, r := range requests() {
		f := shared.fresh()
		f.engine.got = held("health")
		ctx, hangUp := context.WithCancel(t.Context())
		f.do(t, httptest.NewRequest(r.method, r.target, nil).WithContext(ctx))
		if err := f.engine.ctx.Err(); err != nil {
			t.Errorf("%s: the context ended before the client hung up: %v", r.name, err)
		}
		hangUp()
		if f.engine.ctx.Err() == nil {
			t.Errorf("%s: the engine's context is not the request's", r.name)
		}
	}
}

func TestEachOutcomeIsOneLogLine(t *testing.T) {
	shared := newFixture(t, dualStack, restapi.Report{})
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
			f := shared.fresh()
			f.engine.got = held("health")
			f.ask(t, tt.method, tt.target)
			if n := len(f.log.AllEntries()); n != 1 {
				t.Fatalf("%d log lines; expected one", n)
			}
			line := f.outcome(t)
			if line.Level != tt.level {
				t.Errorf("logged at %s; expected %s", line.Level, tt.level)
			}
			for key, want := range tt.want {
				if line.Data[key] != want {
					t.Errorf("log field %s is %v; expected %v", key, line.Data[key], want)
				}
			}
		})
	}
}

func TestAMissingOptionIsRefused(t *testing.T) {
	full := restapi.Options{Engine: &engine{}, Reporter: reporter{}, Log: logrus.New()}
	for name, drop := range map[string]func(*restapi.Options){
		"engine":   func(o *restapi.Options) { o.Engine = nil },
		"reporter": func(o *restapi.Options) { o.Reporter = nil },
		"log":      func(o *restapi.Options) { o.Log = nil },
	} {
		o := full
		drop(&o)
		if _, err := restapi.New(o); err == nil {
			t.Errorf("no %s was accepted", name)
		}
	}
}

// unflushed is a connection whose client leaves before the response is flushed.
type unflushed struct{ *httptest.ResponseRecorder }

func (unflushed) FlushError() error { return errors.New("broken pipe") }

func TestWhatWasAllocatedWithoutAnOwnerIsReleasedIfItsResponseIsNotDelivered(t *testing.T) {
	allocate, restore := "/v1/ipam", "/v1/ipam/10.1.2.3"
	sent := func(r *httptest.ResponseRecorder) http.ResponseWriter { return r }
	for name, c := range map[string]struct {
		target string
		to     func(*httptest.ResponseRecorder) http.ResponseWriter
		change func(*engine)
		unread bool
		want   string
	}{
		"delivered":                          {target: allocate, to: sent},
		"delivered, an address":              {target: restore, to: sent},
		"not flushed":                        {target: allocate, to: func(r *httptest.ResponseRecorder) http.ResponseWriter { return unflushed{r} }, want: "default/anonymous/1"},
		"not flushed, an address":            {target: restore, to: func(r *httptest.ResponseRecorder) http.ResponseWriter { return unflushed{r} }, want: "default/anonymous/1"},
		"not written":                        {target: allocate, to: func(r *httptest.ResponseRecorder) http.ResponseWriter { return goneWriter{r} }, want: "default/anonymous/1"},
		"not read":                           {target: allocate, to: sent, unread: true, want: "default/anonymous/1"},
		"not read, an address":               {target: restore, to: sent, unread: true, want: "default/anonymous/1"},
		"not flushed, of a named owner":      {target: allocate + "?owner=health", to: func(r *httptest.ResponseRecorder) http.ResponseWriter { return unflushed{r} }},
		"not read, of a named owner":         {target: restore + "?owner=health", to: sent, unread: true},
		"not flushed, a refusal":             {target: allocate, to: func(r *httptest.ResponseRecorder) http.ResponseWriter { return unflushed{r} }, change: func(e *engine) { e.err = errors.New("no") }},
		"a failure in place of its response": {target: allocate, to: sent, change: func(e *engine) { e.lookupPanic = "broken" }, want: "default/anonymous/1"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, restapi.Addressing{EnableIPv4: true, EnableIPv6: true}, restapi.Report{})
			f.engine.got = held("anonymous/1")
			if c.change != nil {
				c.change(f.engine)
			}
			f.unread = c.unread
			f.handler.ServeHTTP(c.to(httptest.NewRecorder()), httptest.NewRequest(http.MethodPost, c.target, nil))
			want := []string{c.want}
			if c.want == "" {
				want = nil
			}
			if got := f.engine.abandoned; !slices.Equal(got, want) {
				t.Errorf("released %q; want %q", got, want)
			}
		})
	}
}
