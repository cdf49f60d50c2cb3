package unixsock

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestForeignParent(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("chown to another user needs root")
	}
	dir := shortTempDir(t)
	must(t, os.Chown(dir, 70001, -1))
	path := filepath.Join(dir, "s.sock")
	l, err := listenAt(Options{Path: path})
	if err == nil {
		_ = l.Close()
		t.Fatal("Listen succeeded")
	}
	for _, want := range []string{path, "70001", "--socket-path"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q lacks %q", err, want)
		}
	}
	if got := entries(t, dir); len(got) != 0 {
		t.Errorf("Listen left the files %q", got)
	}
}

func TestCheckParentMode(t *testing.T) {
	for name, c := range map[string]struct {
		mode fs.FileMode
		want string
	}{
		"owner only":             {0o755, ""},
		"group-writable":         {0o775, "is group-writable"},
		"group-writable, sticky": {0o775 | fs.ModeSticky, ""},
		"world-writable":         {0o777, "is world-writable"},
		"world-writable, sticky": {0o777 | fs.ModeSticky, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := shortTempDir(t)
			must(t, os.Chmod(dir, c.mode))
			path := filepath.Join(dir, "s.sock")
			listenOn(t, Options{Path: path}) // Listen succeeds anyway
			err := CheckParentMode(path)
			if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), dir+" "+c.want) {
				t.Errorf("got error %v; want %q", err, c.want)
			}
		})
	}
	if err := CheckParentMode(filepath.Join(shortTempDir(t), "missing", "s.sock")); err == nil {
		t.Error("a missing directory gave no error")
	}
}

func TestAbstractPath(t *testing.T) {
	for _, path := range []string{"@delegated-ipam", "\x00delegated-ipam"} {
		l, err := listenAt(Options{Path: path})
		if err == nil {
			_ = l.Close()
			t.Errorf("Listen on %q succeeded", path)
		} else if !strings.Contains(err.Error(), "abstract socket") {
			t.Errorf("%q: error %q; want one about abstract sockets", path, err)
		}
	}
}
