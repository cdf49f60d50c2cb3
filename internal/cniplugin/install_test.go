package cniplugin

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/strace"
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

// wantInstalled wants a regular file that is the program, and that only its user can change.
func wantInstalled(t *testing.T, path string) {
	t.Helper()
	installed, err := os.ReadFile(path)
	check.Must(t, err)
	program, err := os.ReadFile(filepath.Join(binDir, Type))
	check.Must(t, err)
	info, err := os.Lstat(path)
	check.Must(t, err)
	check.True(t, bytes.Equal(installed, program), "%s is not the program", path)
	check.Equal(t, "mode", info.Mode(), programMode)
	check.Equal(t, "user", info.Sys().(*syscall.Stat_t).Uid, uint32(os.Geteuid()))
}

// The runtime runs the file as root, so no other user may be able to change it.
//
//evidence:operate/security `delegated-ipam-cni` in the directory of CNI plugins as a link or FIFO, of another user, or with another mode than 0755
func TestInstallReplaces(t *testing.T) {
	for name, change := range map[string]func(path string) error{
		"mode":   func(path string) error { return os.Chmod(path, 0o666) },
		"setuid": func(path string) error { return os.Chmod(path, 0o755|os.ModeSetuid) },
		"link": func(path string) error {
			return errors.Join(os.Rename(path, path+".copy"), os.Symlink(path+".copy", path))
		},
		"FIFO":        func(path string) error { return errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o755)) },
		"foreign":     func(path string) error { return os.Chown(path, 70001, -1) },
		"other bytes": func(path string) error { return os.Truncate(path, 1<<20) },
	} {
		t.Run(name, func(t *testing.T) {
			if name == "foreign" {
				check.Root(t)
			}
			path := filepath.Join(t.TempDir(), Type)
			wantRun(t, 0, "installed "+path, "install", filepath.Dir(path))
			check.Must(t, change(path))
			wantRun(t, 0, "installed "+path, "install", filepath.Dir(path))
			wantInstalled(t, path)
			wantRun(t, 0, path+" is up to date", "install", filepath.Dir(path))
		})
	}
}

func TestInstallDurable(t *testing.T) {
	if err := strace.Try(t.Context()); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	out, err := exec.Command("strace", "-f", "-y", "-qq", "-e", "trace=/rename.*|fsync", "-o", "/dev/stdout", filepath.Join(binDir, Type), "install", dir).Output()
	check.Must(t, err)
	var calls []string
	for _, step := range strace.Parse(string(out)) {
		if step.Ended && step.OK && strings.Contains(step.Args, dir) { // others are of the coverage
			calls = append(calls, step.Call+" "+strings.Trim(filepath.Base(step.Args), `">`))
		}
	}
	check.Equal(t, "system calls", calls, []string{"fsync ." + Type + ".new", "renameat " + Type, "fsync " + filepath.Base(dir)})
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
	wantInstalled(t, path)
	wantRun(t, 0, path+" is up to date", "install", bin)
	wantRun(t, 1, "no such file or directory", "install", filepath.Join(bin, "none"))

	named := filepath.Join(conf, "05-cilium.conflist")
	write(named, `{"plugins": [{"ipam": {"type": "delegated-ipam-cni"}}]}`, 0o600)
	wantRun(t, 1, named+" names it", "remove", bin, conf)
	check.Equal(t, "files", check.Names(t, bin), Type)
	check.Must(t, os.Rename(named, named+".cilium_bak"))
	write(named, `{"plugins": [{"ipam": {"type": "host-local"}}]}`, 0o600)
	further := filepath.Join(conf, "pods.conf", "10-cilium.conf") // of the network pods.conf
	check.Must(t, os.Mkdir(filepath.Dir(further), 0o700))
	write(further, `{"ipam": {"type": "delegated-ipam-cni"}}`, 0o600)
	wantRun(t, 1, further+" names it", "remove", bin, conf)
	check.Must(t, os.Rename(further, further+"list"))
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
