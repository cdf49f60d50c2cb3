package daemon

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// smallPlugin has one folder for each address, because mkdir(2) is atomic.
const smallPlugin = `#!/bin/sh
held="$0.held"
mkdir -p "$held"
case "$CNI_COMMAND" in
VERSION) echo '{"cniVersion":"1.0.0","supportedVersions":["1.0.0"]}' ;;
ADD)
	i=2
	until mkdir "$held/$i" 2>/dev/null; do i=$((i + 1)); done
	echo "$CNI_CONTAINERID" >"$held/$i/id"
	echo '{"cniVersion":"1.0.0","ips":[{"address":"10.15.0.'$i'/24"}]}' ;;
DEL) for id in "$held"/*/id; do
	if grep -qx "$CNI_CONTAINERID" "$id" 2>/dev/null; then rm -r "$(dirname "$id")"; fi
done ;;
esac
`

// What is left behind by requests, answered and given up, is found by goleak at
// the end of the package's tests.
func TestManyRequestsLeaveNoGoroutineBehind(t *testing.T) {
	c := valid(t)
	c.write(t, "net.d/1.conflist", `{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"cilium-cni","ipam":{"type":"small"}}]}`)
	c.write(t, "bin/small", smallPlugin)
	c.CNIBinDirs = []string{filepath.Join(filepath.Dir(c.SocketPath), "bin")}
	if err := os.Chmod(filepath.Join(c.CNIBinDirs[0], "small"), 0o700); err != nil {
		t.Fatal(err)
	}
	log, ended, stop := run(t, c)
	log.await(t, "msg=Serving", ended)

	var clients sync.WaitGroup
	for i := range 24 {
		clients.Go(func() {
			path := fmt.Sprintf("/v1/ipam?owner=owner-%d", i)
			if i%3 == 0 {
				c.hangUp(t, path)
				return
			}
			if status := c.ask(t, http.MethodPost, path); status != http.StatusCreated {
				t.Errorf("POST %s is answered %d; want 201", path, status)
			}
		})
	}
	clients.Wait()
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// ask returns the status of an answer; 0 if there is none.
func (c Config) ask(t *testing.T, method, path string) int {
	t.Helper()
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", c.SocketPath)
		},
	}
	req, err := http.NewRequestWithContext(t.Context(), method, "http://localhost"+path, http.NoBody)
	if err != nil {
		t.Error(err)
		return 0
	}
	res, err := transport.RoundTrip(req)
	if err != nil {
		t.Error(err)
		return 0
	}
	defer res.Body.Close()
	return res.StatusCode
}

// hangUp asks and does not wait for the answer.
func (c Config) hangUp(t *testing.T, path string) {
	t.Helper()
	conn, err := net.Dial("unix", c.SocketPath)
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", path); err != nil {
		t.Error(err)
	}
}
