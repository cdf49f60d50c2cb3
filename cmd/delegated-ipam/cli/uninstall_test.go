package cli

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

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
