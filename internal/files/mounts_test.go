package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

func TestMountIDOf(t *testing.T) {
	dir := t.TempDir()
	here, err := MountIDOf(dir)
	check.Must(t, err)
	if same, err := MountIDOf(filepath.Dir(dir)); err != nil || same != here {
		t.Errorf("the parent directory has %v, %v; want %v", same, err, here)
	}
	if proc, err := MountIDOf("/proc"); err != nil || proc == here {
		t.Errorf("/proc has %v, %v; want another than %v", proc, err, here)
	}
	if _, err := MountIDOf(filepath.Join(dir, "missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing path: %v; want fs.ErrNotExist", err)
	}
}

func TestMountOf(t *testing.T) {
	if m := MountOf("/proc"); m.Type != "proc" || m.Point != "/proc" {
		t.Errorf("/proc is on %+v; want the mount of proc", m)
	}
	if m := MountOf("/proc/missing"); m != (Mount{}) {
		t.Errorf("a missing path is on %+v; want none", m)
	}
}

// receivesEnv makes a process of this test print whether the mount of the named path receives mounts.
const receivesEnv = "FILES_TEST_RECEIVES"

func TestMain(m *testing.M) {
	if path := os.Getenv(receivesEnv); path != "" {
		fmt.Print(MountOf(path).Receives)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// Each case is what a shell does in a separate mount namespace with the directories host and here.
func TestReceives(t *testing.T) {
	check.Root(t)
	for name, c := range map[string]struct {
		mount string
		want  bool
	}{
		"not mounted": {"true", false},
		"private":     {"mount --bind host here", false},
		"shared":      {"mount --bind host here && mount --make-shared here", true},
		"slave":       {"mount --bind host host && mount --make-shared host && mount --bind host here && mount --make-slave here", true},
		// The kernel removes a directory that is mounted elsewhere, and the mount shows nothing new.
		"removed": {"mount --bind host here && mount --make-shared here && rmdir host", false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, name := range []string{"host", "here"} {
				check.Must(t, os.Mkdir(filepath.Join(dir, name), 0o755))
			}
			cmd := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-ec", c.mount+` && exec "$0"`, os.Args[0])
			cmd.Dir, cmd.Env = dir, append(os.Environ(), receivesEnv+"="+filepath.Join(dir, "here"))
			out, err := cmd.Output()
			if err != nil {
				t.Skipf("no mount namespace: %v", err)
			}
			check.Equal(t, "receives", string(out), fmt.Sprint(c.want))
		})
	}
}
