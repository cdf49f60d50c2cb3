package cli

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
)

func TestUninstallUsage(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "colour")
	put(t, file, "red")
	for name, tt := range map[string]struct {
		args []string
		word string
	}{
		"not confirmed":       {nil, "--yes"},
		"negative timeout":    {[]string{"--yes", "--timeout=-1s"}, "--timeout"},
		"unknown option":      {[]string{"--yes", "--config-dir=" + dir}, file},
		"abstract socket":     {[]string{"--yes", "--socket-path=@x"}, "--socket-path"},
		"an argument":         {[]string{"--yes", "x"}, "expected no argument"},
		"an option of serve":  {[]string{"--yes", "--owners=x"}, "--owners"},
		"unreadable duration": {[]string{"--yes", "--timeout=soon"}, "--timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			testDependencies(nil).exec(t, append([]string{"uninstall", "--state-dir=" + dir}, tt.args...)...).wants(t, cmdline.ExitUsage, "", tt.word)
		})
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}

// uninstall has the paths of serve, from the same sources.
func TestUninstallPaths(t *testing.T) {
	dir, config := t.TempDir(), t.TempDir()
	state, socket := filepath.Join(dir, "state"), filepath.Join(dir, "s.sock")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"state-dir": state, "owners": "router"} {
		put(t, filepath.Join(config, name), value+"\n")
	}
	d := testDependencies(map[string]string{"DELEGATED_IPAM_CONFIG_DIR": config, "DELEGATED_IPAM_SOCKET_PATH": socket})
	d.exec(t, "uninstall", "--yes").wants(t, cmdline.ExitOK, "removed "+state+"\n")
	if _, err := os.Stat(state); !os.IsNotExist(err) {
		t.Errorf("the state directory: %v; want %v", err, fs.ErrNotExist)
	}
	d.exec(t, "uninstall", "--yes").wants(t, cmdline.ExitOK, "nothing to remove in "+state+" and at "+socket+"\n")
}

// A daemon that serves carries out the DELs in its spool first. Those that are left after the limit are named.
func TestUninstallDrains(t *testing.T) {
	waits := func(n int, why string) response {
		return jsonResponse(200, fmt.Sprintf(`{"delegated-ipam":{"spool":{"directory":"/s","pending":%d,"error":%q}}}`, n, why))
	}
	const listens = "already listens on it" // uninstall has gone on to the socket
	for name, tt := range map[string]struct {
		healthz      []response
		words, lacks []string
	}{
		"drained": {[]response{waits(2, ""), waits(1, ""), waits(0, "")}, []string{"2 DELs of containers wait in /s; waiting", listens}, []string{"remove its file"}},
		"left":    {[]response{waits(1, "a.del (container ID c): refused")}, []string{"1 DELs of containers wait in /s after 1m0s: a.del (container ID c): refused; ", "remove its file"}, []string{listens}},
		"ends":    {[]response{waits(1, ""), {code: 503}}, []string{"1 DELs", listens}, []string{"remove its file"}},
		"empty":   {[]response{waits(0, "")}, []string{listens}, []string{"DELs"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := startDaemon(t, map[string][]response{"GET /v1/healthz": tt.healthz})
			o := advancing(s.dependencies(), time.Second).exec(t, "uninstall", "--yes", "--state-dir="+filepath.Join(t.TempDir(), "none"), "--socket-path="+s.socket)
			o.wants(t, cmdline.ExitFailed, "", tt.words...)
			for _, word := range tt.lacks {
				if strings.Contains(o.stderr, word) {
					t.Errorf("stderr %q has %q", o.stderr, word)
				}
			}
		})
	}
}

// A daemon that hangs does not prolong --timeout by the limit of a request.
func TestUninstallTimeout(t *testing.T) {
	s := startDaemon(t, nil)
	s.mu.Lock() // it answers no request
	defer s.mu.Unlock()
	d, begun := s.dependencies(), time.Now()
	d.exec(t, "uninstall", "--yes", "--timeout=1ms", "--state-dir="+filepath.Join(t.TempDir(), "none"), "--socket-path="+s.socket).wants(t, cmdline.ExitFailed, "", "already listens on it")
	if took := time.Since(begun); took >= d.requestLimit {
		t.Errorf("took %s", took)
	}
}

func TestPause(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan outcome)
	go func() { done <- testDependencies(nil).execContext(ctx, "pause") }()
	select {
	case o := <-done:
		t.Fatalf("ended before the signal: %+v", o)
	default:
	}
	cancel()
	(<-done).wants(t, cmdline.ExitOK, "")
	testDependencies(nil).exec(t, "pause", "x").wants(t, cmdline.ExitUsage, "", "expected no argument")
}
