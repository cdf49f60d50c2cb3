package unixsock

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

//evidence:operate/security a header of more than 8 KiB or 100 lines; a body of more than 64 KiB (1 MiB for `/cni/…` by root)
func TestBodyLimit(t *testing.T) {
	path := filepath.Join(shortTempDir(t), "s.sock")
	l, err := listenAt(Options{Path: path})
	check.Must(t, err)
	reached := make(chan int64, 10)
	serveOn(t, Server(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { reached <- r.ContentLength }), logging.Discard()), l)
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}}
	ofRoot := http.StatusRequestEntityTooLarge
	if os.Geteuid() == 0 {
		ofRoot = http.StatusOK
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
		"GC, largest":        {maxOfRuntime, false, ofRoot, "/v1/cni/gc"},
		"ADD, largest":       {maxOfRuntime, false, ofRoot, "/v1/cni/add"},
		"GC, too large":      {maxOfRuntime + 1, false, http.StatusRequestEntityTooLarge, "/v1/cni/gc"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://x"+c.path, io.LimitReader(zeros{}, c.length))
			check.Must(t, err)
			if r.ContentLength = c.length; c.chunked {
				r.ContentLength = -1
			}
			resp, err := client.Do(r)
			check.Must(t, err)
			check.Must(t, resp.Body.Close())
			check.Equal(t, "status", resp.StatusCode, c.want)
			if got, want := len(reached), map[int]int{http.StatusOK: 1}[c.want]; got != want {
				t.Fatalf("%d requests reached the handler; want %d", got, want)
			}
			if c.want == http.StatusOK { // by the length the router recognizes a body
				check.Equal(t, "length", <-reached, c.length)
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
			check.Must(t, err)
			defer conn.Close()
			send(t, conn, "POST /v1/ipam HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n"+body)
			check.Must(t, conn.(*net.UnixConn).CloseWrite())
			check.Equal(t, "status", readStatus(t, conn), http.StatusBadRequest)
			check.Equal(t, "requests that reached the handler", len(reached), 0)
		})
	}
}

// net/http would respond itself, also to a caller who may not call.
func TestOptionsOfServer(t *testing.T) {
	path, reached := serve(t, Callers{})
	conn, err := net.Dial("unix", path)
	check.Must(t, err)
	defer conn.Close()
	send(t, conn, "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n")
	check.Equal(t, "status", readStatus(t, conn), http.StatusOK)
	check.Equal(t, "requests that reached the handler", len(reached), 1)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

//evidence:operate/security a header not complete after 10 s, a request after 30 s, an idle connection of 2 min
func TestTimeouts(t *testing.T) {
	s := Server(http.NotFoundHandler(), logging.Discard())
	const clientTimeout = 90
	check.True(t, s.WriteTimeout.Seconds() > clientTimeout, "the write timeout is %s", s.WriteTimeout)
	check.Equal(t, "timeout of a header", s.ReadHeaderTimeout, 10*time.Second)
	check.Equal(t, "timeout of a request", s.ReadTimeout, 30*time.Second)
	check.Equal(t, "timeout of an idle connection", s.IdleTimeout, 2*time.Minute)
}

// A client that sends a part of a body, and no more, is disconnected, and its request reaches no handler.
//
//evidence:operate/security a header not complete after 10 s, a request after 30 s, an idle connection of 2 min
func TestStalledBody(t *testing.T) {
	path := filepath.Join(shortTempDir(t), "s.sock")
	l, err := listenAt(Options{Path: path})
	check.Must(t, err)
	reached := make(chan Peer, 1)
	s := Server(authorize(Callers{}, reached), logging.Discard())
	s.ReadTimeout = time.Millisecond
	serveOn(t, s, l)
	conn, err := net.Dial("unix", path)
	check.Must(t, err)
	defer conn.Close()
	send(t, conn, "POST /v1/ipam HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\nx")
	_, _ = io.Copy(io.Discard, conn) // ends when the connection is closed
	check.Equal(t, "requests that reached the handler", len(reached), 0)
}

func TestServerErrorLog(t *testing.T) {
	var out strings.Builder
	log := logrus.New()
	log.SetOutput(&out)
	Server(http.NotFoundHandler(), log).ErrorLog.Print("http: something")
	check.Contains(t, out.String(), "level=warning", "http: something")
}
