package unixsock

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const (
	// attackerID is the attacker's user and group.
	attackerID = 70001
	// taken ends the names of staging directories that the attacker has moved.
	taken = ".taken"
)

// victim is a file of ours outside of the socket's directory.
type victim struct {
	path   string
	before fs.FileInfo
}

func newVictim(t *testing.T) victim {
	t.Helper()
	v := victim{path: filepath.Join(shortTempDir(t), "victim")}
	must(t, os.WriteFile(v.path, nil, 0o600))
	var err error
	v.before, err = os.Lstat(v.path)
	must(t, err)
	return v
}

// changed returns an error if the file has another mode or group than at first.
func (v victim) changed() error {
	now, err := os.Lstat(v.path)
	if err != nil {
		return err
	}
	before, after := v.before.Sys().(*syscall.Stat_t), now.Sys().(*syscall.Stat_t)
	if before.Mode != after.Mode || before.Gid != after.Gid {
		return fmt.Errorf("%s had mode %o, group %d; now it has mode %o, group %d", v.path, before.Mode, before.Gid, after.Mode, after.Gid)
	}
	return nil
}

// sharedDir returns a directory in which the members of the attacker's group may write.
func sharedDir(t *testing.T) string {
	t.Helper()
	dir := shortTempDir(t)
	must(t, os.Chown(dir, -1, attackerID))
	must(t, os.Chmod(dir, 0o775))
	return dir
}

// replaceStaging puts a directory with a symbolic link in place of a staging directory. An error means
// that a race was lost.
func replaceStaging(staging, target string) error {
	if err := os.Rename(staging, staging+taken); err != nil {
		return err
	}
	if err := os.Mkdir(staging, 0o755); err != nil {
		return err
	}
	return os.Symlink(target, filepath.Join(staging, stagedName))
}

// attackUntil starts the attacks of a member of the directory's group, who replaces staging
// directories until stop is closed. Each success increments replaced.
func attackUntil(t *testing.T, stop chan struct{}, dir string, v victim, replaced *atomic.Int32) (done chan struct{}) {
	t.Helper()
	return asUser(t, attackerID, nil, func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			all, _ := os.ReadDir(dir)
			for _, e := range all {
				if strings.HasPrefix(e.Name(), ".socket-") && !strings.HasSuffix(e.Name(), taken) &&
					replaceStaging(filepath.Join(dir, e.Name()), v.path) == nil {
					replaced.Add(1)
				}
			}
		}
	})
}

func TestStagingRace(t *testing.T) {
	const wanted = 50 // without protection one of the first ten changes the victim
	if os.Geteuid() != 0 {
		t.Skip("acting as another user needs root")
	}
	v, dir := newVictim(t), sharedDir(t)
	stop, replaced := make(chan struct{}), atomic.Int32{}
	attack := attackUntil(t, stop, dir, v, &replaced)
	for replaced.Load() < wanted && v.changed() == nil {
		l, err := listenAt(Options{Path: filepath.Join(dir, "s.sock"), Mode: 0o666, Group: "12345"})
		if err == nil {
			must(t, l.Close())
		}
	}
	close(stop)
	<-attack
	must(t, v.changed())
}

// TestReplacedStaging replaces the staging directory between two steps of Listen.
func TestReplacedStaging(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("chown to another group needs root")
	}
	v := newVictim(t)
	dir := sharedDir(t)
	target, err := openLocation(filepath.Join(dir, "s.sock"))
	must(t, err)
	defer target.dir.Close()
	s, err := newStagingDir(target)
	must(t, err)
	must(t, replaceStaging(s.dir.Name(), v.path))
	l, _, err := s.bind(0o640, 12345)
	must(t, err)
	defer l.Close()
	must(t, v.changed())
	must(t, s.install(nil))
	s.remove()
	var stat unix.Stat_t
	must(t, unix.Lstat(filepath.Join(dir, "s.sock"), &stat))
	if stat.Mode != unix.S_IFSOCK|0o640 || stat.Gid != 12345 {
		t.Errorf("the socket has mode %o, group %d", stat.Mode, stat.Gid)
	}
	if info, err := os.Lstat(filepath.Join(s.dir.Name(), stagedName)); err != nil || info.Mode().Type() != fs.ModeSymlink {
		t.Errorf("the link in the directory of the attacker is %v, %v; want it untouched", info, err)
	}
}

// TestLeftoverStaging puts a directory of ours, with files, in the place of the staging directory
// of a previous run.
func TestLeftoverStaging(t *testing.T) {
	path := filepath.Join(shortTempDir(t), "s.sock")
	planted := filepath.Join(filepath.Dir(path), stagingPrefix("s.sock")+"1")
	must(t, os.Mkdir(planted, 0o700))
	must(t, os.WriteFile(filepath.Join(planted, "precious"), nil, 0o600))
	must(t, unix.Mkfifo(filepath.Join(planted, stagedName), 0o600))
	listenOn(t, Options{Path: path})
	if got := entries(t, planted); len(got) != 2 {
		t.Errorf("the directory has %q; want both files", got)
	}
}
