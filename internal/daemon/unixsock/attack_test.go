package unixsock

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

const (
	// attackerID is the attacker's user and group.
	attackerID = 70001
	// taken ends the names of staging directories that the attacker has moved.
	taken = ".taken"
)

// newVictim creates a file outside of the socket's directory. changed reports another mode or group.
func newVictim(t *testing.T) (path string, changed func() error) {
	t.Helper()
	path = filepath.Join(shortTempDir(t), "victim")
	check.Must(t, os.WriteFile(path, nil, 0o600))
	var before, now unix.Stat_t
	check.Must(t, unix.Lstat(path, &before))
	return path, func() error {
		err := unix.Lstat(path, &now)
		if err == nil && (before.Mode != now.Mode || before.Gid != now.Gid) {
			err = fmt.Errorf("%s had mode %o, group %d; now it has mode %o, group %d", path, before.Mode, before.Gid, now.Mode, now.Gid)
		}
		return err
	}
}

// sharedDir returns a directory in which the members of the attacker's group may write.
func sharedDir(t *testing.T) string {
	t.Helper()
	check.Root(t)
	dir := shortTempDir(t)
	check.Must(t, os.Chown(dir, -1, attackerID))
	check.Must(t, os.Chmod(dir, 0o775))
	return dir
}

// replaceStaging puts a directory with a link in place of a staging directory; an error is a lost race.
func replaceStaging(staging, target string) error {
	if err := os.Rename(staging, staging+taken); err != nil {
		return err
	}
	if err := os.Mkdir(staging, 0o755); err != nil {
		return err
	}
	return os.Symlink(target, filepath.Join(staging, stagedName))
}

// A member of the directory's group replaces staging directories while Listen creates them.
//
//evidence:operate/security replacing the socket's staging directory, so that root changes or removes another file
func TestStagingRace(t *testing.T) {
	const wanted = 50 // without protection one of the first ten changes the victim
	dir := sharedDir(t)
	victim, changed := newVictim(t)
	var replaced atomic.Int32
	var stop atomic.Bool
	attack := asUser(t, attackerID, nil, func() {
		for !stop.Load() {
			all, _ := os.ReadDir(dir)
			for _, e := range all {
				if strings.HasPrefix(e.Name(), ".socket-") && !strings.HasSuffix(e.Name(), taken) &&
					replaceStaging(filepath.Join(dir, e.Name()), victim) == nil {
					replaced.Add(1)
				}
			}
		}
	})
	for replaced.Load() < wanted && changed() == nil {
		l, err := listenAt(Options{Path: filepath.Join(dir, "s.sock"), Mode: 0o666, Group: "12345"})
		if err == nil {
			check.Must(t, l.Close())
		}
	}
	stop.Store(true)
	<-attack
	check.Must(t, changed())
}

// The staging directory is replaced between two steps of Listen.
//
//evidence:operate/security replacing the socket's staging directory, so that root changes or removes another file
func TestReplacedStaging(t *testing.T) {
	dir := sharedDir(t)
	victim, changed := newVictim(t)
	path := filepath.Join(dir, "s.sock")
	s, err := newStaging(path)
	check.Must(t, err)
	check.Must(t, replaceStaging(s.Name(), victim))
	l, _, err := bindIn(s, path, 0o640, 12345)
	check.Must(t, err)
	defer l.Close()
	removeStaging(s)
	check.Must(t, changed())
	var stat unix.Stat_t
	check.Must(t, unix.Lstat(path, &stat))
	check.Equal(t, "mode of the socket", stat.Mode, unix.S_IFSOCK|0o640)
	check.Equal(t, "group of the socket", stat.Gid, 12345)
	if info, err := os.Lstat(filepath.Join(s.Name(), stagedName)); err != nil || info.Mode().Type() != fs.ModeSymlink {
		t.Errorf("the link in the directory of the attacker is %v, %v; want it untouched", info, err)
	}
}

// Listen removes the staging directory of a previous run, but not of another socket, or with other files.
func TestStagingCleanup(t *testing.T) {
	dir := shortTempDir(t)
	staging := func(socket string) string {
		staging, err := os.MkdirTemp(dir, filepath.Base(stagingPrefix(socket)))
		check.Must(t, err)
		return staging
	}
	leaveStaleSocket(t, filepath.Join(staging("s.sock"), stagedName))
	other, planted := staging("other.sock"), staging("s.sock")
	check.Must(t, os.WriteFile(filepath.Join(planted, "precious"), nil, 0o600))
	check.Must(t, unix.Mkfifo(filepath.Join(planted, stagedName), 0o600))
	listenOn(t, Options{Path: filepath.Join(dir, "s.sock")})
	want := []string{filepath.Base(other), filepath.Base(planted), "s.sock"}
	slices.Sort(want)
	check.Equal(t, "files in the directory", check.Names(t, dir), strings.Join(want, " "))
	check.Equal(t, "files in the planted directory", check.Names(t, planted), "precious "+stagedName)
}
