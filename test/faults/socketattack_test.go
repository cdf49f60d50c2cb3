package faults

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// TestSocketAttack starts the sidecar while another user, who may write to the socket's directory,
// replaces its new directories by ones with a link to a file outside.
func TestSocketAttack(t *testing.T) {
	t.Parallel()
	st := newStats(t, accessControl)
	st.countCase(t)
	if os.Geteuid() != 0 {
		harness.Skipf(t, "only root can act as another user")
	}
	n := nodeWith(t)
	shared := filepath.Join(n.Dir, "shared")
	harness.Must(t, os.Chmod(n.Dir, 0o711))
	harness.Must(t, os.Mkdir(shared, 0o775))
	harness.Must(t, os.Chmod(shared, 0o775))
	harness.Must(t, os.Chown(shared, 0, foreignGroup))
	n.Socket = filepath.Join(shared, "ipam.sock")
	victim := filepath.Join(n.Dir, "victim")
	harness.Must(t, os.WriteFile(victim, nil, 0o600))

	var replaced atomic.Int32
	stop := make(chan struct{})
	var attack sync.WaitGroup
	attack.Go(func() {
		err := harness.RunAs(harness.User{UID: foreignUID, GID: foreignGroup}, func() {
			replaceDirectories(stop, shared, victim, &replaced)
		})
		if err != nil {
			t.Error(err)
		}
	})
	for range 100 {
		s := n.Launch(t, "--socket-mode=0666")
		harness.Eventually(t, "the sidecar to serve or to end", func() error {
			if s.Running() && !strings.Contains(s.Log(), "msg=Serving") {
				return errors.New(s.Log())
			}
			return nil
		})
		if s.Running() {
			s.Stop(t)
		}
		if info, err := os.Lstat(victim); err != nil || info.Mode() != 0o600 {
			t.Errorf("after %d attacks the file outside is %v, %v; want its mode unchanged", replaced.Load(), info.Mode(), err)
			break
		}
		if replaced.Load() >= 20 {
			break
		}
	}
	close(stop)
	attack.Wait()
	if replaced.Load() == 0 {
		t.Error("no directory was replaced; the test proves nothing")
	}
	t.Logf("%d directories were replaced", replaced.Load())
}

// replaceDirectories replaces each new directory in dir, until stop is closed.
func replaceDirectories(stop chan struct{}, dir, victim string, replaced *atomic.Int32) {
	const taken = ".taken"
	for {
		select {
		case <-stop:
			return
		default:
		}
		all, _ := os.ReadDir(dir)
		for _, e := range all {
			path := filepath.Join(dir, e.Name())
			if !e.IsDir() || strings.HasSuffix(path, taken) {
				continue
			}
			if os.Rename(path, path+taken) == nil && os.Mkdir(path, 0o755) == nil && os.Symlink(victim, filepath.Join(path, "s")) == nil {
				replaced.Add(1)
			}
		}
	}
}
