package e2e

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestConfigDir(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	directory := filepath.Join(n.Dir, "config")
	harness.Must(t, os.Mkdir(directory, 0o755))
	for name, value := range map[string]string{"owners": "router\n", "enable-ipv6": "false"} {
		harness.Must(t, os.WriteFile(filepath.Join(directory, name), []byte(value), 0o644))
	}
	s := n.Start(t, "--config-dir="+directory)
	s.TryAllocate(t, harness.Request{Owner: "ingress"}).WantStatus(t, 403)
	if got := s.AllocateFor(t, "router"); len(got) != 1 {
		t.Errorf("with enable-ipv6=false in the directory it got %q; want IPv4 only", got)
	}
}

// A sparse file of 5 GiB would fill the memory of the machine, and a FIFO would block the start.
var hostileFiles = map[string]func(path string) error{
	"FIFO":         func(path string) error { return unix.Mkfifo(path, 0o600) },
	"sparse 5 GiB": func(path string) error { return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 5<<30)) },
	"directory":    func(path string) error { return os.Mkdir(path, 0o755) },
}

func TestHostileCNIConf(t *testing.T) {
	t.Parallel()
	for name, create := range hostileFiles {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := nodeWith(t, harness.DualStack())
			harness.Must(t, create(filepath.Join(n.ConfDir, "00-first.conflist")))
			n.Start(t).AllocateFor(t, "router")
		})
	}
}

func TestOptionsFromEnvironment(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	n.Env = []string{"DELEGATED_IPAM_OWNERS=router", "DELEGATED_IPAM_ENABLE_IPV6=false"}
	s := n.Start(t, "--enable-ipv6=true")
	s.TryAllocate(t, harness.Request{Owner: "ingress"}).WantStatus(t, 403)
	if got := s.AllocateFor(t, "router"); len(got) != 2 {
		t.Errorf("with the flag --enable-ipv6=true it got %q; want both families", got)
	}
}

func TestJournalModes(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	s := n.Start(t)
	s.AllocateFor(t, "router")
	seen := 0
	err := filepath.WalkDir(n.StateDir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		seen++
		if got := info.Mode().Perm(); got&0o077 != 0 {
			t.Errorf("the mode of %s is %o; want no rights for group and others", path, got)
		}
		return nil
	})
	if err != nil || seen < 3 {
		t.Errorf("saw %d files and directories under %s, %v; want at least a record and its directories", seen, n.StateDir, err)
	}
}
