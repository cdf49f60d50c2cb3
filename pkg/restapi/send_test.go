package restapi_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/delegated-ipam/delegated-ipam/pkg/attachment"
	"github.com/delegated-ipam/delegated-ipam/pkg/restapi"
)

// atLine calls a function when a line is logged.
type atLine func()

func (atLine) Levels() []logrus.Level     { return logrus.AllLevels }
func (f atLine) Fire(*logrus.Entry) error { f(); return nil }

func TestAnAnswerIsOutBeforeItsLineIsWritten(t *testing.T) {
	for name, c := range map[string]struct {
		request request
		code    int
	}{
		"one with a body":    {request{"", http.MethodPost, "/v1/ipam?owner=health"}, http.StatusCreated},
		"one without a body": {request{"", http.MethodDelete, "/v1/ipam/10.1.2.3"}, http.StatusOK},
		"a refusal":          {request{"", http.MethodPost, "/v1/ipam?owner=%zz"}, http.StatusUnprocessableEntity},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, dualStack, restapi.Report{})
			f.engine.got = held("health")
			rec := httptest.NewRecorder()
			lines := 0
			f.logger.AddHook(atLine(func() {
				lines++
				if !rec.Flushed || rec.Code != c.code || rec.Header().Get("Content-Length") != strconv.Itoa(rec.Body.Len()) {
					t.Errorf("at its line the answer is %d, flushed: %t, %v, %d bytes", rec.Code, rec.Flushed, rec.Header(), rec.Body.Len())
				}
			}))
			f.handler.ServeHTTP(rec, httptest.NewRequest(c.request.method, c.request.target, nil))
			if lines != 1 {
				t.Errorf("%d lines; want one", lines)
			}
		})
	}
}

func TestAnAnswerOfAnyLengthIsWhole(t *testing.T) {
	f := newFixture(t, dualStack, restapi.Report{})
	for count := range 60 {
		a := held("default/" + strings.Repeat("x", count))
		f.engine.all = append(f.engine.all, attachment.Attachment{Record: a.Record})
		rec := httptest.NewRecorder()
		f.handler.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/v1/ipam", nil))
		if got := strings.Count(rec.Body.String(), `"owner":`); got != count+1 {
			t.Fatalf("%d attachments in %d bytes; want %d", got, rec.Body.Len(), count+1)
		}
	}
}

// received is what a client gets.
type received struct {
	code     int
	length   int64
	encoding string
	body     string
}

func (r received) String() string {
	return fmt.Sprintf("%d, length %d %s, %d bytes %.100q", r.code, r.length, r.encoding, len(r.body), r.body)
}

// ask asks a server that serves a handler.
func ask(t *testing.T, method string, handler http.Handler) received {
	t.Helper()
	server := httptest.NewServer(handler)
	defer server.Close()
	r, err := http.NewRequestWithContext(t.Context(), method, server.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return received{answer.StatusCode, answer.ContentLength, strings.Join(answer.TransferEncoding, ","), string(body)}
}

func TestAClientGetsWhatNetHTTPWouldHaveSentByItself(t *testing.T) {
	write := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
	}
	code := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	for name, handler := range map[string]http.Handler{
		"nothing":         http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
		"a code":          code(http.StatusNotFound),
		"no content":      code(http.StatusNoContent),
		"not modified":    code(http.StatusNotModified),
		"a body":          write("text"),
		"a body in parts": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { write("one")(w, r); write("two")(w, r) }),
		"a long body":     write(strings.Repeat("x", 8<<10)),
		"a long body in parts": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for _, part := range []string{"one", strings.Repeat("x", 8<<10), "three"} {
				write(part)(w, r)
			}
		}),
		"a refusal": http.NotFoundHandler(),
	} {
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodDelete} {
			log, _ := logtest.NewNullLogger()
			want := ask(t, method, handler)
			if got := ask(t, method, restapi.Around(log, handler)); got != want {
				t.Errorf("%s, %s: got %v; want %v", name, method, got, want)
			}
		}
	}
}

func TestAPanicTakesBackWhatIsNotOutYet(t *testing.T) {
	for name, c := range map[string]struct {
		written, starts string
		code            int
	}{
		"nothing":       {"", `{"code":500`, http.StatusInternalServerError},
		"what was held": {"half an answer", `{"code":500`, http.StatusInternalServerError},
		"what was out":  {strings.Repeat("x", 8<<10), "xxx", http.StatusCreated},
	} {
		log, _ := logtest.NewNullLogger()
		got := ask(t, http.MethodPost, restapi.Around(log, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if c.written != "" {
				w.WriteHeader(http.StatusCreated)
				_, _ = io.WriteString(w, c.written)
			}
			panic("something broke")
		})))
		if got.code != c.code || !strings.HasPrefix(got.body, c.starts) || c.code == http.StatusCreated && got.body != c.written {
			t.Errorf("%s: got %v", name, got)
		}
	}
}
