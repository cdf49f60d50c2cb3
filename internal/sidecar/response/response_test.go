package response_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/response"
)

// received is a response as the client got it.
type received struct {
	code     int
	length   int64
	encoding string
	body     string
}

func (r received) String() string {
	return fmt.Sprintf("%d, length %d %s, %d bytes %.100q", r.code, r.length, r.encoding, len(r.body), r.body)
}

// send sends a request to a server with a handler.
func send(t *testing.T, method string, handler http.Handler) received {
	t.Helper()
	server := httptest.NewServer(handler)
	defer server.Close()
	r, err := http.NewRequestWithContext(t.Context(), method, server.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return received{resp.StatusCode, resp.ContentLength, strings.Join(resp.TransferEncoding, ","), string(body)}
}

// buffered passes a handler a Writer with a buffer.
func buffered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b := response.NewBuffer(w, r)
		next.ServeHTTP(b, r)
		if err := b.Send(); err != nil {
			panic(err)
		}
	})
}

// observed passes a handler a Writer that reports the status codes to codes.
func observed(next http.Handler, codes *[]int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o := response.NewObserver(w, func(code int) { *codes = append(*codes, code) })
		next.ServeHTTP(o, r)
		o.WriteHeader(http.StatusOK)
	})
}

// The client must get the response that net/http sends without the Writer.
func TestFraming(t *testing.T) {
	write := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
	}
	code := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	for name, handler := range map[string]http.Handler{
		"nothing":       http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
		"code":          code(http.StatusNotFound),
		"no content":    code(http.StatusNoContent),
		"not modified":  code(http.StatusNotModified),
		"body":          write("text"),
		"body in parts": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { write("one")(w, r); write("two")(w, r) }),
		"long body":     write(strings.Repeat("x", 8<<10)),
		"long body in parts": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for _, part := range []string{"one", strings.Repeat("x", 8<<10), "three"} {
				write(part)(w, r)
			}
		}),
		"error": http.NotFoundHandler(),
	} {
		t.Run(name, func(t *testing.T) {
			for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodDelete} {
				want := send(t, method, handler)
				var codes []int
				if got := send(t, method, buffered(handler)); got != want {
					t.Errorf("%s, buffer: got %v; want %v", method, got, want)
				}
				if got := send(t, method, observed(handler, &codes)); got != want || !slices.Equal(codes, []int{want.code}) {
					t.Errorf("%s, observer: got %v, codes %v; want %v", method, got, codes, want)
				}
				if got := send(t, method, observed(buffered(handler), &codes)); got.code != want.code || got.body != want.body || len(codes) != 2 {
					t.Errorf("%s, both: got %v, codes %v; want %v", method, got, codes, want)
				}
			}
		})
	}
}

func TestFirstCode(t *testing.T) {
	rec := httptest.NewRecorder()
	w := response.NewBuffer(rec, httptest.NewRequest(http.MethodGet, "/", nil))
	if got := w.Status(); got != 0 {
		t.Errorf("the initial status is %d; want 0", got)
	}
	w.WriteHeader(http.StatusNotFound)
	w.WriteHeader(http.StatusOK)
	if err := w.Send(); err != nil || rec.Code != http.StatusNotFound || w.Status() != http.StatusNotFound {
		t.Errorf("sent %d, status %d, %v; want the first", rec.Code, w.Status(), err)
	}
}

func TestReset(t *testing.T) {
	for name, c := range map[string]struct {
		first, want string
		sent        bool
	}{
		"buffered": {"first", "second", false},
		"sent":     {strings.Repeat("x", 8<<10), strings.Repeat("x", 8<<10) + "second", true},
	} {
		t.Run(name, func(t *testing.T) {
			rec := httptest.NewRecorder()
			w := response.NewBuffer(rec, httptest.NewRequest(http.MethodGet, "/", nil))
			_, _ = io.WriteString(w, c.first)
			if got := w.Reset(); got == c.sent {
				t.Errorf("Reset returned %t", got)
			}
			_, _ = io.WriteString(w, "second")
			if err := w.Send(); err != nil || rec.Body.String() != c.want {
				t.Errorf("sent %.20q, %v; want %.20q", rec.Body, err, c.want)
			}
		})
	}
}

// closedWriter is a connection that the client has closed.
type closedWriter struct{ *httptest.ResponseRecorder }

func (closedWriter) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestClosedConnection(t *testing.T) {
	w := response.NewBuffer(closedWriter{httptest.NewRecorder()}, httptest.NewRequest(http.MethodGet, "/", nil))
	if _, err := w.Write([]byte("short")); err != nil {
		t.Errorf("a write to the buffer returned %v", err)
	}
	if _, err := w.Write(make([]byte, 8<<10)); err == nil {
		t.Error("a write to the connection returned no error")
	}
	w = response.NewBuffer(closedWriter{httptest.NewRecorder()}, httptest.NewRequest(http.MethodGet, "/", nil))
	if err := w.Send(); err == nil {
		t.Error("Send returned no error")
	}
}
