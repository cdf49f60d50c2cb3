package cniconf

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/dirwatch"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// run runs a watcher until the test ends. The returned function waits for its next call of
// OnChange's function.
func run(t *testing.T, o Options) (w *Watcher, changed func()) {
	t.Helper()
	w = watcher(t, o)
	changes := make(chan struct{}, 100)
	w.OnChange(func() { changes <- struct{}{} })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return w, func() { <-changes }
}

func TestNewDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "etc", "cni", "net.d")
	w, changed := run(t, Options{Dir: dir})
	put(t, dir, "10-a.conflist", list("a"))
	for w.Status("default").Err != nil {
		changed()
	}
	expect(t, w, "default", "a", "10-a.conflist")

	// The directory is replaced.
	check.Must(t, os.Rename(dir, dir+".old"))
	for w.Status("default").Err == nil {
		changed()
	}
	expectKept(t, w, "default", "a", "no such file or directory")
	put(t, dir, "10-b.conflist", list("b"))
	for w.Status("default").Network != "b" {
		changed()
	}
}

func TestRename(t *testing.T) {
	dir := t.TempDir()
	file := put(t, dir, "10-a.conflist", list("a"))
	for name, o := range map[string]Options{"in a directory": {Dir: dir}, "as the one given": {File: file}} {
		t.Run(name, func(t *testing.T) {
			put(t, dir, "10-a.conflist", list("a"))
			w, changed := run(t, o)
			expect(t, w, "default", "a", "10-a.conflist")
			check.Must(t, os.Rename(put(t, dir, "new", list("b")), file))
			for w.Status("default").Network != "b" {
				changed()
			}
			expect(t, w, "default", "b", "10-a.conflist")
		})
	}
}

func TestConfigMap(t *testing.T) {
	dir := configMap(t, "10-a.conflist", list("a"))
	w, changed := run(t, Options{Dir: dir})
	expect(t, w, "default", "a", "10-a.conflist")

	// The kubelet replaces the link to the directory of a version.
	put(t, dir, "..2/10-a.conflist", list("b"))
	check.Must(t, os.Symlink("..2", filepath.Join(dir, "..data_tmp")))
	check.Must(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	for w.Status("default").Network != "b" {
		changed()
	}
}

// Without events of the file system the files are read after each RereadInterval.
func TestUnwatched(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := watcher(t, Options{Dir: dir})
		go w.RunUnwatched(t.Context())
		synctest.Wait()
		put(t, dir, "10-a.conflist", list("a"))
		synctest.Wait()
		expectNone(t, w, "default")
		time.Sleep(dirwatch.RereadInterval)
		synctest.Wait()
		expect(t, w, "default", "a", "10-a.conflist")
	})
}
