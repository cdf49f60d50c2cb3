package cniplugin

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/delegated-ipam/delegated-ipam/internal/spool"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// withSpool returns a spool, and the configuration of a socket with it and a short limit.
func withSpool(t *testing.T, socket string) (*spool.Dir, string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("the spool is root's")
	}
	d, err := spool.Create(t.TempDir())
	check.Must(t, err)
	t.Cleanup(func() { d.Close() })
	return d, fmt.Sprintf(`{"cniVersion":"1.1.0","name":"pods","ipam":{"type":"delegated-ipam-cni","socket":%q,"timeout":1,"spool":%q}}`, socket, d.Path())
}

// A DEL is left exactly if the daemon has not answered it, or rejects it for now.
func TestDelIsLeft(t *testing.T) {
	answers := map[string]struct {
		handler http.HandlerFunc
		code    uint
		left    int
	}{
		"success":          {responds(200, ""), 0, 0},
		"refused":          {responds(502, `"the server is away"`), errFailed, 0},
		"refused for now":  {responds(502, `"the queue is full"`, "Retry-After", "5"), 0, 1},
		"forbidden":        {responds(403, `"no"`), errFailed, 0},
		"another network":  {responds(404, `"no"`), types.ErrInvalidNetworkConfig, 0},
		"not HTTP":         {writes("SSH-2.0-x\r\n"), errFailed, 0},
		"reset":            {writes(""), 0, 1},
		"cut":              {writes("HTTP/1.0 200 OK\r\nContent-Length: 9\r\n\r\n{}"), 0, 1},
		"without response": {func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body); <-r.Context().Done() }, 0, 1},
	}
	for name, tt := range answers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			socket := serve(t, tt.handler)
			d, config := withSpool(t, socket)
			_, err := plugin{command: "DEL", config: config}.run(t, socket)
			checkError(t, name, err, tt.code)
			names, listErr := d.List()
			if listErr != nil || len(names) != tt.left {
				t.Errorf("the spool has %q, %v; want %d", names, listErr, tt.left)
			}
		})
	}
}

// The entry has what DEL needs, and what distinguishes the sandbox.
func TestLeftEntry(t *testing.T) {
	d, config := withSpool(t, filepath.Join(t.TempDir(), "absent"))
	netns := filepath.Join(t.TempDir(), "netns")
	check.Must(t, os.WriteFile(netns, nil, 0o600))
	for _, command := range []string{"ADD", "CHECK", "GC"} {
		if _, err := (plugin{command: command, config: strings.Replace(config, `"name"`, `"cni.dev/valid-attachments":[],"name"`, 1)}).run(t, ""); err == nil {
			t.Errorf("%s succeeded without a daemon", command)
		}
	}
	_, failed := plugin{command: "DEL", config: config, environ: []string{"CNI_NETNS=" + netns}}.run(t, "")
	checkError(t, "DEL", failed, 0)
	names, err := d.List()
	if err != nil || len(names) != 1 {
		t.Fatalf("the spool has %q, %v", names, err)
	}
	e, _, err := d.Read(names[0])
	check.Must(t, err)
	if e.Network != "pods" || e.ContainerID != "0123abcd" || e.IfName != "eth0" || e.NetNS != netns || e.Inode == 0 || e.Device == 0 ||
		e.Written.IsZero() || e.Args != "IgnoreUnknown=1;K8S_POD_NAME=web-0" {
		t.Errorf("the entry is %+v", e)
	}
}

// The entry is of the sandbox at the call: while it waited, an ADD of the same container ID may have been carried out, of
// another namespace under the same path.
func TestLeftEntryIsOfTheCall(t *testing.T) {
	netns := filepath.Join(t.TempDir(), "netns")
	check.Must(t, os.WriteFile(netns, nil, 0o600))
	called, err := os.Stat(netns)
	check.Must(t, err)
	var added time.Time
	socket := serve(t, func(w http.ResponseWriter, r *http.Request) {
		added = time.Now()
		if err := errors.Join(os.Rename(netns, netns+".old"), os.WriteFile(netns, nil, 0o600)); err != nil {
			t.Error(err)
		}
		responds(502, `"the queue is full"`, "Retry-After", "5")(w, r)
	})
	d, config := withSpool(t, socket)
	_, failed := plugin{command: "DEL", config: config, environ: []string{"CNI_NETNS=" + netns}}.run(t, socket)
	checkError(t, "DEL", failed, 0)
	names, err := d.List()
	check.Must(t, err)
	e, _, err := d.Read(strings.Join(names, " "))
	check.Must(t, err)
	if stat, ok := called.Sys().(*syscall.Stat_t); !ok || e.Inode != stat.Ino || !e.Written.Before(added) {
		t.Errorf("the entry is %+v; want that of %+v, before %s", e, called.Sys(), added)
	}
}

// A spool that cannot be used is named in the error, which is the one of a daemon that is away.
func TestDelCannotBeLeft(t *testing.T) {
	absent := filepath.Join(t.TempDir(), "absent")
	d, config := withSpool(t, absent)
	check.Must(t, os.Chmod(d.Path(), 0o750))
	_, err := plugin{command: "DEL", config: config}.run(t, "")
	checkError(t, "DEL", err, types.ErrTryAgainLater, "start delegated-ipam on this node", "the DEL cannot be left for it", "its mode is 0750")
	wantFailure(t, "DEL", err)
	_, err = plugin{command: "DEL", config: strings.Replace(config, d.Path(), "spool", 1)}.run(t, "")
	checkError(t, "relative path", err, types.ErrInvalidNetworkConfig, "ipam.spool")
}
