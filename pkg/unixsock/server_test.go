package unixsock

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
)

//evidence:operate/security L10
func TestBodyLimit(t *testing.T) {
	path := filepath.Join(shortTempDir(t), "s.sock")
	l, err := Listen(Options{Path: path})
	must(t, err)
	readErr := make(chan error, 1)
	s := Server(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		readErr <- err
	}), silentLogger())
	serveOn(t, s, l)
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}}
	for size, tooLarge := range map[int]bool{maxBody: false, maxBody + 1: true} {
		resp, err := client.Post("http://x/", "text/plain", strings.NewReader(strings.Repeat("x", size)))
		must(t, err)
		must(t, resp.Body.Close())
		_, got := errors.AsType[*http.MaxBytesError](<-readErr)
		if got != tooLarge {
			t.Errorf("%d bytes: too large is %t, want %t", size, got, tooLarge)
		}
	}
}

//evidence:operate/security L11
func TestTimeouts(t *testing.T) {
	s := Server(http.NotFoundHandler(), silentLogger())
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
