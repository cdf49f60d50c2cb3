package files

import (
	"errors"
	"io/fs"
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
