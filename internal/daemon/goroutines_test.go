package daemon

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// smallPlugin is a plugin with one directory for each address, because mkdir(2) is atomic. It
// searches a free one from its PID on, so that concurrent processes do not collide.
const smallPlugin = `#!/bin/sh
held="$0.held"
mkdir -p "$held"
case "$CNI_COMMAND" in
VERSION) echo '{"cniVersion":"1.0.0","supportedVersions":["1.0.0"]}' ;;
ADD)
	case "$CNI_ARGS" in
	*IP=10.15.0.*)
		i="${CNI_ARGS##*IP=10.15.0.}" i="${i%%[!0-9]*}"
		mkdir "$held/$i" || exit 1 ;;
	*)
		i=$(($$ % 90 + 2))
		until mkdir "$held/$i" 2>/dev/null; do i=$((i + 1)); done ;;
	esac
	echo "$CNI_CONTAINERID" >"$held/$i/id"
	echo '{"cniVersion":"1.0.0","ips":[{"address":"10.15.0.'$i'/24"}]}' ;;
DEL)
	id=$(grep -lx "$CNI_CONTAINERID" "$held"/*/id 2>/dev/null)
	if [ -n "$id" ]; then rm -r "${id%/id}"; fi ;;
esac
exit 0
`

// smallProfile allows requests for one address.
const smallProfile = `{"type":"small","repeatedAdd":"another-address","verifyBy":"check","checkProves":"presence","lost":{"message":"not found"},
"addOutlivesSeconds":0,"del":"released","store":"node","lookup":"none","requests":["CNI_ARGS"],"requestForm":"address","podIdentity":"none",
"namespace":"any","unique":true,"sources":["smallPlugin"]}`

func withSmallPlugin(t *testing.T) Config {
	t.Helper()
	c := valid(t)
	c.EnableIPv6 = false
	write(t, c, "net.d/1.conflist", `{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"cilium-cni","ipam":{"type":"small"}}]}`)
	write(t, c, "bin/small", smallPlugin)
	write(t, c, "small.json", smallProfile)
	dir := filepath.Dir(c.SocketPath)
	c.CNIBinDirs, c.PluginProfiles = []string{filepath.Join(dir, "bin")}, []string{filepath.Join(dir, "small.json")}
	check.Must(t, os.Chmod(filepath.Join(dir, "bin/small"), 0o700))
	return c
}

// At the end of the package's tests goleak finds the goroutines that requests leave behind.
func TestGoroutines(t *testing.T) {
	const clients = 64
	c := withSmallPlugin(t)
	stop := serving(t, c)

	var all sync.WaitGroup
	for i := range clients {
		owner, restored := fmt.Sprintf("?owner=owner-%d", i), fmt.Sprintf("10.15.0.%d", 180+i)
		all.Go(func() {
			switch i % 6 {
			case 0:
				hangUp(t, c, http.MethodPost, "/v1/ipam"+owner)
			case 1:
				hangUp(t, c, http.MethodPost, "/v1/ipam/"+restored+owner)
			case 2:
				hangUp(t, c, http.MethodDelete, "/v1/ipam/"+allocate(t, c, owner))
			case 3:
				request(t, c, http.MethodPost, "/v1/ipam/"+restored+owner, http.StatusOK)
			case 4:
				request(t, c, http.MethodDelete, "/v1/ipam/"+allocate(t, c, owner), http.StatusOK)
			default:
				request(t, c, http.MethodPost, "/v1/ipam/"+allocate(t, c, owner)+owner, http.StatusOK)
			}
		})
	}
	all.Wait()
	stop()
}

func allocate(t *testing.T, c Config, owner string) string {
	t.Helper()
	var got models.IPAMResponse
	if err := json.Unmarshal(request(t, c, http.MethodPost, "/v1/ipam"+owner, http.StatusCreated), &got); err != nil || got.Address == nil {
		t.Errorf("allocate %s: no address: %v", owner, err)
		return ""
	}
	return got.Address.IPv4
}

// request sends a request, checks the status of the response, and returns its body.
func request(t *testing.T, c Config, method, path string, status int) []byte {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://localhost"+path, http.NoBody)
	if err != nil {
		t.Error(err)
		return nil
	}
	res, err := transport(c).RoundTrip(req)
	if err != nil {
		t.Error(err)
		return nil
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != status {
		t.Errorf("%s %s: %s %s (%v); want %d", method, path, res.Status, body, err, status)
	}
	return body
}

// hangUp sends a request and closes the connection before the response.
func hangUp(t *testing.T, c Config, method, path string) {
	t.Helper()
	conn, err := net.Dial("unix", c.SocketPath)
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", method, path); err != nil {
		t.Error(err)
	}
}
