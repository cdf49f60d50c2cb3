package mounts

import (
	"errors"
	"io/fs"
	"path/filepath"
	"testing"
)

func TestIDOf(t *testing.T) {
	dir := t.TempDir()
	here, err := IDOf(dir)
	if err != nil {
		t.Fatal(err)
	}
	if same, err := IDOf(filepath.Dir(dir)); err != nil || same != here {
		t.Errorf("the parent directory has %v, %v; want %v", same, err, here)
	}
	if proc, err := IDOf("/proc"); err != nil || proc == here {
		t.Errorf("/proc has %v, %v; want another than %v", proc, err, here)
	}
	if _, err := IDOf(filepath.Join(dir, "missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing path: %v; want fs.ErrNotExist", err)
	}
}

func TestOf(t *testing.T) {
	if m := Of("/proc"); m.Type != "proc" || m.Point != "/proc" {
		t.Errorf("/proc is on %+v; want the mount of proc", m)
	}
	if m := Of("/proc/missing"); m != (Mount{}) {
		t.Errorf("a missing path is on %+v; want none", m)
	}
}
