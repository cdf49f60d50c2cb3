package cli

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
)

// advancing returns the dependencies of a test whose clock advances by a second at each call.
func advancing(d dependencies) dependencies {
	clock := noon()
	d.now = func() time.Time {
		clock = clock.Add(time.Second)
		return clock
	}
	return d
}

func TestReleaseAllWaits(t *testing.T) {
	s := startSidecar(t, map[string][]answer{
		"GET /v1/ipam":             {{code: http.StatusServiceUnavailable}, {code: http.StatusServiceUnavailable}, jsonAnswer(200, "["+cooldown+"]"), {code: 500}, jsonAnswer(200, "[]")},
		"GET /v1/healthz":          {jsonAnswer(200, allRead)},
		"DELETE /v1/ipam/10.0.0.4": {{code: 200}},
	})
	advancing(s.dependencies()).exec(t, "release", "--all", "--yes", "--wait=1m").wants(t, cmdline.ExitOK,
		"released 10.0.0.4 of pool default\n", "waiting for the sidecar, at most 1m", "503")
}

func TestReleaseAllWaitsNoLonger(t *testing.T) {
	s := startSidecar(t, map[string][]answer{"GET /v1/ipam": {{code: http.StatusServiceUnavailable}}})
	o := advancing(s.dependencies()).exec(t, "release", "--all", "--yes", "--wait=10s", "--if-running")
	o.wants(t, cmdline.ExitFailed, "", "waiting for the sidecar, at most 10s", "release --all: ", "503")
	if got := len(s.requests()); got < 2 || got > 10 {
		t.Errorf("%d requests; want several within 10s", got)
	}
}

func TestReleaseAllIfRunning(t *testing.T) {
	dir := t.TempDir()
	stale := filepath.Join(dir, "stale")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, socket := range map[string]string{"no socket": filepath.Join(dir, "none"), "stale socket": stale, "not a socket": file} {
		t.Run(name, func(t *testing.T) {
			d := advancing(testDependencies(nil))
			d.exec(t, "release", "--all", "--yes", "--wait=3s", "--if-running", "-H="+socket).wants(t, cmdline.ExitOK, "",
				"no process listens on "+socket, "nothing was released", "delegated-ipam uninstall")
			d.exec(t, "release", "--all", "--yes", "--wait=3s", "-H="+socket).wants(t, cmdline.ExitFailed, "", "no sidecar can be reached")
		})
	}
}

func TestReleaseWaitUsage(t *testing.T) {
	for _, args := range [][]string{
		{"--wait=1m", "10.0.0.1"}, {"--if-running", "10.0.0.1"}, {"--all", "--yes", "--wait=-1s"},
	} {
		testDependencies(nil).exec(t, append([]string{"release"}, args...)...).wants(t, cmdline.ExitUsage, "", "expected")
	}
}
