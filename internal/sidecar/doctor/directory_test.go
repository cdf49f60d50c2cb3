package doctor

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/files"
)

func TestCollectDirectory(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	t.Run("missing", func(t *testing.T) {
		if f := collectDirectory(filepath.Join(dir, "a/b")); f.err != nil || f.at != dir || f.free == 0 || f.notWritable != nil {
			t.Errorf("got %+v; want the description of %s", f, dir)
		}
	})
	for _, path := range []string{"file", "file/x"} {
		t.Run(path, func(t *testing.T) {
			if f := collectDirectory(filepath.Join(dir, path)); f.err == nil {
				t.Errorf("got %+v; want an error", f)
			}
		})
	}
}

func TestInEmptyDir(t *testing.T) {
	for root, want := range map[string]bool{
		"/var/lib/kubelet/pods/x/volumes/kubernetes.io~empty-dir/run": true, "/var/lib/kubelet/pods/x/volumes/kubernetes.io~configmap/run": false, "": false,
	} {
		if got := inEmptyDir(files.Mount{Root: root}); got != want {
			t.Errorf("%q: %t; want %t", root, got, want)
		}
	}
}
