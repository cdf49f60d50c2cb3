package httpapi

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

type received struct {
	code     int
	length   int64
	encoding string
	body     string
}

func (r received) String() string {
	return fmt.Sprintf("%d, length %d %s, %d bytes %.100q", r.code, r.length, r.encoding, len(r.body), r.body)
}

func sendTo(t *testing.T, method string, handler http.Handler) received {
	t.Helper()
	server := httptest.NewServer(handler)
	defer server.Close()
	r, err := http.NewRequestWithContext(t.Context(), method, server.URL, http.NoBody)
	check.Must(t, err)
	resp, err := server.Client().Do(r)
	check.Must(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	check.Must(t, err)
	return received{resp.StatusCode, resp.ContentLength, strings.Join(resp.TransferEncoding, ","), string(body)}
}

// buffered passes a handler a writer, which reports the status codes to codes.
func buffered(next http.Handler, codes *[]int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b := &writer{to: w, head: r.Method == http.MethodHead, onStatus: func(code int) { *codes = append(*codes, code) }}
		next.ServeHTTP(b, r)
		if err := b.send(); err != nil {
			panic(err)
		}
	})
}

// The client must get the response that net/http sends without the writer.
func TestFraming(t *testing.T) {
	write := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
	}
	code := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	for name, handler := range map[string]http.Handler{
		"nothing": http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
		"code":    code(http.StatusNotFound),
		"two codes": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			code(http.StatusNotFound)(w, r)
			code(http.StatusOK)(w, r)
		}),
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
				want := sendTo(t, method, handler)
				var codes []int
				if got := sendTo(t, method, buffered(handler, &codes)); got != want || !slices.Equal(codes, []int{want.code}) {
					t.Errorf("%s: got %v, codes %v; want %v", method, got, codes, want)
				}
			}
		})
	}
}
