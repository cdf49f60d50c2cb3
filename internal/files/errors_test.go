package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

func TestIn(t *testing.T) {
	dir := t.TempDir()
	check.Must(t, os.MkdirAll(filepath.Join(dir, "full", "file"), 0o700))
	root, err := os.OpenRoot(dir)
	check.Must(t, err)
	defer root.Close()
	_, openErr := root.Open("none")
	_, lstatErr := root.Lstat("none")
	_, rootErr := root.OpenRoot("none")
	for _, tt := range []struct {
		err  error
		want string
	}{
		{openErr, "open DIR/none: no such file or directory"},
		{lstatErr, "stat DIR/none: no such file or directory"},
		{rootErr, "open DIR/none: no such file or directory"},
		{root.Remove("full"), "remove DIR/full: directory not empty"},
		{root.Mkdir("full", 0o700), "mkdir DIR/full: file exists"},
		{root.Chmod("none", 0o700), "chmod DIR/none: no such file or directory"},
		{root.Rename("none", "other"), "rename DIR/none DIR/other: no such file or directory"},
		{errors.New("other"), "other"},
	} {
		if want, got := strings.ReplaceAll(tt.want, "DIR", dir), In(root, tt.err); got == nil || got.Error() != want {
			t.Errorf("got %v; want %s", got, want)
		}
	}
	if !errors.Is(In(root, openErr), fs.ErrNotExist) {
		t.Errorf("%v is not %v", In(root, openErr), fs.ErrNotExist)
	}
	if err := errors.Join(In(root, nil), AtPath(root, "none", nil)); err != nil {
		t.Errorf("no error became %v", err)
	}
	if got, want := AtPath(root, "none", openErr), dir+"/none: no such file or directory"; got.Error() != want {
		t.Errorf("got %v; want %s", got, want)
	}
}

func TestWithoutPath(t *testing.T) {
	err := &fs.PathError{Op: "open", Path: "/a/b/.", Err: unix.EROFS}
	for path, want := range map[string]string{
		"/a/b": "open: read-only file system",
		"/b":   "open /a/b/.: read-only file system",
		"/a":   "open /a/b/.: read-only file system",
	} {
		if got := WithoutPath(err, path); got.Error() != want || !errors.Is(got, unix.EROFS) {
			t.Errorf("without %s: %v; want %s", path, got, want)
		}
	}
	if got := Cause(err); got != unix.EROFS {
		t.Errorf("the cause of %v is %v", err, got)
	}
	if got := Cause(unix.EIO); got != unix.EIO {
		t.Errorf("the cause of %v is %v", unix.EIO, got)
	}
}

func TestWithRemedy(t *testing.T) {
	another := "configure another directory (--state-dir)"
	for _, tt := range []struct {
		err  error
		want string
	}{
		{unix.EROFS, "; mount its file system writable, or " + another},
		{unix.EACCES, fmt.Sprintf("; give user %d the permission, or %s", os.Geteuid(), another)},
		{unix.EPERM, fmt.Sprintf("; give user %d the permission, or %s", os.Geteuid(), another)},
		{unix.ENOSPC, "; free space on its file system"},
		{unix.EDQUOT, "; free space on its file system"},
		{unix.ENOTDIR, "; " + another},
		{unix.EIO, ""},
		{errors.New("owned by user 7"), ""},
	} {
		err := fmt.Errorf("open: %w", tt.err)
		if got := WithRemedy(err, "--state-dir"); got.Error() != err.Error()+tt.want || !errors.Is(got, tt.err) {
			t.Errorf("%v became %v; want %q after it", err, got, tt.want)
		}
	}
}
