package cniplugin

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// wantRun runs a command of the plugin's program.
func wantRun(t *testing.T, code int, text string, args ...string) {
	t.Helper()
	cmd := exec.Command(filepath.Join(binDir, Type), args...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	if got := cmd.ProcessState.ExitCode(); got != code || !strings.Contains(string(out), text) {
		t.Errorf("%q: exit code %d, printed %q; want %d and %q", args, got, out, code, text)
	}
}

func TestInstall(t *testing.T) {
	bin, conf := t.TempDir(), t.TempDir()
	path := filepath.Join(bin, Type)
	write := func(path, content string, mode os.FileMode) {
		t.Helper()
		check.Must(t, os.WriteFile(path, []byte(content), mode))
	}
	write(path, "an older version", 0o644)
	write(filepath.Join(bin, ".delegated-ipam-cni.new"), "an interrupted copy", 0o600)
	wantRun(t, 0, "installed "+path, "install", bin)
	check.Equal(t, "files", check.Names(t, bin), Type)
	installed, err := os.ReadFile(path)
	program, programErr := os.ReadFile(filepath.Join(binDir, Type))
	info, statErr := os.Stat(path)
	if err != nil || programErr != nil || statErr != nil || !bytes.Equal(installed, program) || info.Mode() != 0o755 {
		t.Fatalf("the installed file is not the program, executable by all: %v %v %v %v", info, err, programErr, statErr)
	}
	wantRun(t, 0, path+" is up to date", "install", bin)
	wantRun(t, 1, "no such file or directory", "install", filepath.Join(bin, "none"))

	named := filepath.Join(conf, "05-cilium.conflist")
	write(named, `{"plugins": [{"ipam": {"type": "delegated-ipam-cni"}}]}`, 0o600)
	wantRun(t, 1, named+" names it", "remove", bin, conf)
	check.Equal(t, "files", check.Names(t, bin), Type)
	check.Must(t, os.Rename(named, named+".cilium_bak"))
	write(named, `{"plugins": [{"ipam": {"type": "host-local"}}]}`, 0o600)
	wantRun(t, 0, path+" is removed", "remove", bin, conf)
	check.Equal(t, "files", check.Names(t, bin), "")
	wantRun(t, 0, "", "remove", bin, filepath.Join(conf, "none"))

	for _, args := range [][]string{{"install"}, {"remove", bin}, {"--help", "install"}, {"ADD"}} {
		wantRun(t, 2, "expected install BIN_DIR, or remove BIN_DIR CONF_DIR\nRun 'delegated-ipam-cni --help'", args...)
	}
	for _, arg := range []string{"--help", "-h", "help"} {
		wantRun(t, 0, "Usage:\n  delegated-ipam-cni [COMMAND]\n\nMaintenance:\n  install BIN_DIR ", arg)
	}
}
