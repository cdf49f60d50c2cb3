package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/engine"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/httpapi"
)

func TestPanic(t *testing.T) {
	f := newFixture(t, dualStack, &models.DelegatedIPAMStatus{})
	f.engine.panic = "something broke"
	wantCode(t, f.send(t, http.MethodPost, "/v1/ipam?owner=health"), http.StatusInternalServerError)
	var stack, line *logrus.Entry
	for _, e := range f.log.AllEntries() {
		if e.Data["stacktrace"] != nil {
			stack = e
		} else {
			line = e
		}
	}
	if stack == nil || !strings.Contains(stack.Data["stacktrace"].(string), "Allocate") {
		t.Error("the log has no stack trace of the panic")
	}
	if line == nil || line.Level != logrus.WarnLevel || line.Data["error"] != "something broke" || line.Data["code"] != 500 {
		t.Errorf("the log line of the request is %+v", line)
	}
}

func TestPanicAfterWrite(t *testing.T) {
	for name, c := range map[string]struct {
		written, prefix string
		code            int
	}{
		"nothing":  {"", `{"code":500`, http.StatusInternalServerError},
		"buffered": {"half a response", `{"code":500`, http.StatusInternalServerError},
		"sent":     {strings.Repeat("x", 8<<10), "xxx", http.StatusCreated},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, dualStack, &models.DelegatedIPAMStatus{})
			server := httptest.NewServer(httpapi.WithServer(f.handler.Options, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if c.written != "" {
					w.WriteHeader(http.StatusCreated)
					_, _ = io.WriteString(w, c.written)
				}
				panic("something broke")
			})))
			defer server.Close()
			resp, err := server.Client().Post(server.URL, "", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			data, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			body := string(data)
			if resp.StatusCode != c.code || !strings.HasPrefix(body, c.prefix) || c.code == http.StatusCreated && body != c.written {
				t.Errorf("got code %d with %.100q", resp.StatusCode, body)
			}
		})
	}
}

// closedWriter is a connection that the client has closed.
type closedWriter struct{ *httptest.ResponseRecorder }

func (closedWriter) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestClientDisconnect(t *testing.T) {
	for name, c := range map[string]struct {
		method, target string
		level          logrus.Level
	}{
		"short": {http.MethodPost, "/v1/ipam?owner=health", logrus.InfoLevel},
		"long":  {http.MethodGet, "/v1/ipam", logrus.DebugLevel},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, dualStack, &models.DelegatedIPAMStatus{})
			f.engine.got = held("health")
			f.engine.all = slices.Repeat([]engine.Attachment{f.engine.got}, 100)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			r := httptest.NewRequest(c.method, c.target, nil).WithContext(ctx)
			f.handler.ServeHTTP(closedWriter{httptest.NewRecorder()}, r)
			if n := len(f.log.AllEntries()); n != 1 {
				t.Errorf("%d log lines; want one", n)
			}
			line := f.logLine(t)
			if text, _ := line.Data["error"].(string); !strings.Contains(text, "client closed") || line.Level != c.level {
				t.Errorf("the log line of the request is %v %+v", line.Level, line.Data)
			}
		})
	}
}

func TestPartlySentResponse(t *testing.T) {
	for name, c := range map[string]struct {
		method, target string
		code           int
	}{
		"short": {http.MethodPost, "/v1/ipam?owner=health", http.StatusCreated},
		"long":  {http.MethodGet, "/v1/ipam", http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, dualStack, &models.DelegatedIPAMStatus{})
			f.engine.got = held("health")
			f.engine.all = slices.Repeat([]engine.Attachment{f.engine.got}, 100)
			rec := httptest.NewRecorder()
			f.handler.ServeHTTP(closedWriter{rec}, httptest.NewRequest(c.method, c.target, nil))
			if rec.Code != c.code {
				t.Errorf("the status code became %d", rec.Code)
			}
			if line := f.logLine(t); line.Data["code"] != c.code || !strings.Contains(fmt.Sprint(line.Data["error"]), "broken pipe") {
				t.Errorf("the log line of the request is %+v", line.Data)
			}
		})
	}
}

func TestRequestContext(t *testing.T) {
	shared := newFixture(t, dualStack, &models.DelegatedIPAMStatus{})
	for _, r := range requests() {
		f := shared.reset()
		f.engine.got = held("health")
		ctx, cancel := context.WithCancel(t.Context())
		f.do(t, httptest.NewRequest(r.method, r.target, nil).WithContext(ctx))
		if err := f.engine.ctx.Err(); err != nil {
			t.Errorf("%s: the context was canceled before the client disconnected: %v", r.name, err)
		}
		cancel()
		if f.engine.ctx.Err() == nil {
			t.Errorf("%s: the engine did not get the context of the request", r.name)
		}
	}
}

func TestRequiredOptions(t *testing.T) {
	full := newFixture(t, dualStack, &models.DelegatedIPAMStatus{}).handler.Options
	for name, drop := range map[string]func(*httpapi.Options){
		"engine":   func(o *httpapi.Options) { o.Engine = nil },
		"reporter": func(o *httpapi.Options) { o.Reporter = nil },
		"log":      func(o *httpapi.Options) { o.Log = nil },
		"peer":     func(o *httpapi.Options) { o.Peer = nil },
		"refusals": func(o *httpapi.Options) { o.Refusals = nil },
	} {
		o := full
		drop(&o)
		if _, err := httpapi.New(o); err == nil {
			t.Errorf("New succeeds without option %s", name)
		}
	}
}

// unflushedWriter is a connection that the client closes before the response is flushed.
type unflushedWriter struct{ *httptest.ResponseRecorder }

func (unflushedWriter) FlushError() error { return errors.New("broken pipe") }

func TestUndelivered(t *testing.T) {
	allocate, restore := "/v1/ipam", "/v1/ipam/10.1.2.3"
	sent := func(r *httptest.ResponseRecorder) http.ResponseWriter { return r }
	for name, c := range map[string]struct {
		target string
		to     func(*httptest.ResponseRecorder) http.ResponseWriter
		change func(*fakeEngine)
		unread bool
		want   string
	}{
		"delivered":                      {target: allocate, to: sent},
		"restore, delivered":             {target: restore, to: sent},
		"not flushed":                    {target: allocate, to: func(r *httptest.ResponseRecorder) http.ResponseWriter { return unflushedWriter{r} }, want: "default/anonymous/1"},
		"restore, not flushed":           {target: restore, to: func(r *httptest.ResponseRecorder) http.ResponseWriter { return unflushedWriter{r} }, want: "default/anonymous/1"},
		"not written":                    {target: allocate, to: func(r *httptest.ResponseRecorder) http.ResponseWriter { return closedWriter{r} }, want: "default/anonymous/1"},
		"not read":                       {target: allocate, to: sent, unread: true, want: "default/anonymous/1"},
		"restore, not read":              {target: restore, to: sent, unread: true, want: "default/anonymous/1"},
		"named owner, not flushed":       {target: allocate + "?owner=health", to: func(r *httptest.ResponseRecorder) http.ResponseWriter { return unflushedWriter{r} }},
		"named owner, restore, not read": {target: restore + "?owner=health", to: sent, unread: true},
		"error, not flushed":             {target: allocate, to: func(r *httptest.ResponseRecorder) http.ResponseWriter { return unflushedWriter{r} }, change: func(e *fakeEngine) { e.err = errors.New("no") }},
		"panic after the allocation":     {target: allocate, to: sent, change: func(e *fakeEngine) { e.lookupPanic = "broken" }, want: "default/anonymous/1"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, httpapi.Addressing{EnableIPv4: true, EnableIPv6: true}, &models.DelegatedIPAMStatus{})
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
				t.Errorf("abandoned %q; want %q", got, want)
			}
		})
	}
}
