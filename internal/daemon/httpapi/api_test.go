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

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/engine"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/httpapi"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

func TestPanic(t *testing.T) {
	f := newDual(t)
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
		"nothing":  {"", `"internal error"`, http.StatusInternalServerError},
		"buffered": {"half a response", `"internal error"`, http.StatusInternalServerError},
		"sent":     {strings.Repeat("x", 8<<10), "xxx", http.StatusCreated},
	} {
		t.Run(name, func(t *testing.T) {
			f := newDual(t)
			server := httptest.NewServer(httpapi.WithServer(f.handler.Options, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if c.written != "" {
					w.WriteHeader(http.StatusCreated)
					_, _ = io.WriteString(w, c.written)
				}
				panic("something broke")
			})))
			defer server.Close()
			resp, err := server.Client().Post(server.URL, "", http.NoBody)
			check.Must(t, err)
			defer resp.Body.Close()
			data, err := io.ReadAll(resp.Body)
			check.Must(t, err)
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

// The response cannot be written, because the client has closed the connection, before or meanwhile.
func TestClientDisconnect(t *testing.T) {
	for name, c := range map[string]struct {
		method, target string
		code           int
		before         bool
		level          logrus.Level
		reason         string
	}{
		"short":            {http.MethodPost, "/v1/ipam?owner=health", http.StatusCreated, true, logrus.InfoLevel, "client closed"},
		"long":             {http.MethodGet, "/v1/ipam", http.StatusOK, true, logrus.DebugLevel, "client closed"},
		"short, meanwhile": {http.MethodPost, "/v1/ipam?owner=health", http.StatusCreated, false, logrus.InfoLevel, "broken pipe"},
		"long, meanwhile":  {http.MethodGet, "/v1/ipam", http.StatusOK, false, logrus.DebugLevel, "broken pipe"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newDual(t)
			f.engine.got = held("health")
			f.engine.all = slices.Repeat([]engine.Attachment{f.engine.got}, 100)
			ctx, cancel := context.WithCancel(t.Context())
			if c.before {
				cancel()
			}
			defer cancel()
			rec := httptest.NewRecorder()
			f.handler.ServeHTTP(closedWriter{rec}, httptest.NewRequest(c.method, c.target, nil).WithContext(ctx))
			line := f.logLine(t)
			check.Contains(t, fmt.Sprint(line.Data["error"]), c.reason)
			check.Equal(t, "level", line.Level, c.level)
			if c.before {
				check.Equal(t, "number of log lines", len(f.log.AllEntries()), 1)
			} else {
				check.Equal(t, "status", rec.Code, c.code)
				check.Equal(t, "logged status", line.Data["code"], any(c.code))
			}
		})
	}
}

func TestRequestContext(t *testing.T) {
	shared := newDual(t)
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
	full := newDual(t).handler.Options
	for name, drop := range map[string]func(*httpapi.Options){
		"engine":   func(o *httpapi.Options) { o.Engine = nil },
		"reporter": func(o *httpapi.Options) { o.Reporter = nil },
		"log":      func(o *httpapi.Options) { o.Log = nil },
		"peer":     func(o *httpapi.Options) { o.Peer = nil },
		"refusals": func(o *httpapi.Options) { o.Refusals = nil },
	} {
		o := full
		drop(&o)
		_, err := httpapi.New(o)
		check.True(t, err != nil, "New succeeds without option %s", name)
	}
}
