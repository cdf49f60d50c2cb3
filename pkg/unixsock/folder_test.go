package unixsock

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAFolderOfAnotherUserIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("giving a folder to another user needs root")
	}
	dir := folder(t)
	must(t, os.Chown(dir, 70001, -1))
	path := filepath.Join(dir, "s.sock")
	l, err := Listen(Options{Path: path})
	if err == nil {
		_ = l.Close()
		t.Fatal("it listens there")
	}
	for _, want := range []string{path, "70001", "--socket-path"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not say %q", err, want)
		}
	}
	if got := entries(t, dir); len(got) != 0 {
		t.Errorf("it left %q behind", got)
	}
}

func TestAFolderThatEverybodyMayWriteToIsToldOf(t *testing.T) {
	for name, c := range map[string]struct {
		mode fs.FileMode
		want bool
	}{
		"only its owner":                 {0o755, false},
		"its group, too":                 {0o775, false},
		"everybody":                      {0o777, true},
		"everybody, each for themselves": {0o777 | fs.ModeSticky, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := folder(t)
			must(t, os.Chmod(dir, c.mode))
			path := filepath.Join(dir, "s.sock")
			listenOn(t, Options{Path: path}) // it serves all the same
			err := Exposed(path)
			if got := err != nil; got != c.want {
				t.Fatalf("told %v; want that it is told of: %t", err, c.want)
			}
			if err != nil && !strings.Contains(err.Error(), dir) {
				t.Errorf("error %q does not name %s", err, dir)
			}
		})
	}
	if err := Exposed(filepath.Join(folder(t), "missing", "s.sock")); err == nil {
		t.Error("nothing is told of a folder that is not there")
	}
}
