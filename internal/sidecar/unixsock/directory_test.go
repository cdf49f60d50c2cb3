package unixsock

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

func TestForeignParent(t *testing.T) {
	check.Root(t)
	dir := shortTempDir(t)
	check.Must(t, os.Chown(dir, 70001, -1))
	path := filepath.Join(dir, "s.sock")
	check.Error(t, refused(t, path), path, "70001", "--socket-path")
	check.Equal(t, "files in the directory", check.Names(t, dir), "")
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
			check.Must(t, os.Chmod(dir, c.mode))
			path := filepath.Join(dir, "s.sock")
			listenOn(t, Options{Path: path}) // Listen succeeds anyway
			err := CheckParentMode(path)
			if c.want == "" {
				check.NoError(t, err)
			} else {
				check.Error(t, err, dir+" "+c.want)
			}
		})
	}
	check.Error(t, CheckParentMode(filepath.Join(shortTempDir(t), "missing", "s.sock")))
}
