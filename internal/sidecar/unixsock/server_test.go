package unixsock

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/internal/logging"
)

func TestBodyLimit(t *testing.T) {
	path := filepath.Join(shortTempDir(t), "s.sock")
	l, err := listenAt(Options{Path: path})
	must(t, err)
	reached := make(chan int64, 10)
	serveOn(t, Server(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { reached <- r.ContentLength }), logging.Discard()), l)
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}}
	gcOfRoot := http.StatusRequestEntityTooLarge
	if os.Geteuid() == 0 {
		gcOfRoot = http.StatusOK
	}
	for name, c := range map[string]struct {
		length  int64
		chunked bool
		want    int
		path    string
	}{
		"largest":            {maxBody, false, http.StatusOK, "/"},
		"too large":          {maxBody + 1, false, http.StatusRequestEntityTooLarge, "/"},
		"chunked, empty":     {0, true, http.StatusOK, "/"},
		"chunked, largest":   {maxBody, true, http.StatusOK, "/"},
		"chunked, too large": {maxBody + 1, true, http.StatusRequestEntityTooLarge, "/"},
		"GC, largest":        {maxGC, false, gcOfRoot, gcPath},
		"GC, too large":      {maxGC + 1, false, http.StatusRequestEntityTooLarge, gcPath},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://x"+c.path, io.LimitReader(zeros{}, c.length))
			must(t, err)
			if r.ContentLength = c.length; c.chunked {
				r.ContentLength = -1
			}
			resp, err := client.Do(r)
			must(t, err)
			must(t, resp.Body.Close())
			if resp.StatusCode != c.want {
				t.Errorf("status %s, want %d", resp.Status, c.want)
			}
			if got, want := len(reached), map[int]int{http.StatusOK: 1}[c.want]; got != want {
				t.Fatalf("%d requests reached the handler; want %d", got, want)
			}
			// By the length the router recognizes a body.
			if c.want == http.StatusOK {
				if got := <-reached; got != c.length {
					t.Errorf("the handler got a length of %d, want %d", got, c.length)
				}
			}
		})
	}
}

// A body that ends early, or has too many lines, does not reach the handler.
func TestUnreadableBody(t *testing.T) {
	for name, body := range map[string]string{"ends early": "x", "too many lines": strings.Repeat("\n", maxLines+1)} {
		t.Run(name, func(t *testing.T) {
			path, reached := serve(t, Callers{})
			conn, err := net.Dial("unix", path)
			must(t, err)
			defer conn.Close()
			_, err = fmt.Fprintf(conn, "POST /v1/ipam HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n%s", body)
			must(t, err)
			must(t, conn.(*net.UnixConn).CloseWrite())
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			must(t, err)
			must(t, resp.Body.Close())
			if resp.StatusCode != http.StatusBadRequest || len(reached) > 0 {
				t.Errorf("status %s, %d requests reached the handler; want 400 and none", resp.Status, len(reached))
			}
		})
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func TestTimeouts(t *testing.T) {
	s := Server(http.NotFoundHandler(), logging.Discard())
	const clientTimeout = 90
	if s.WriteTimeout.Seconds() <= clientTimeout {
		t.Errorf("the write timeout is %s; want more than the %d s of the clients", s.WriteTimeout, clientTimeout)
	}
	for name, d := range map[string]float64{
		"header": s.ReadHeaderTimeout.Seconds(), "read": s.ReadTimeout.Seconds(), "idle": s.IdleTimeout.Seconds(),
	} {
		if d <= 0 {
			t.Errorf("there is no %s timeout", name)
		}
	}
}

func TestServerErrorLog(t *testing.T) {
	var out strings.Builder
	log := logrus.New()
	log.SetOutput(&out)
	Server(http.NotFoundHandler(), log).ErrorLog.Print("http: something")
	if !strings.Contains(out.String(), "level=warning") || !strings.Contains(out.String(), "http: something") {
		t.Errorf("logged %q", out.String())
	}
}
