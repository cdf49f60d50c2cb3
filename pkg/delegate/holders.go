package delegate

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// holdersOf returns the IDs of the processes that have a lock, other than
// through lock's own file. The kernel tells no process ID of an open file
// description lock (it has none), so every open file in /proc is looked at.
// If this very process is one of them, that is an error: a call of this life
// is not to be ended by another.
func holdersOf(lock *idLock) ([]int, error) {
	file, err := lock.file.Stat()
	if err != nil {
		return nil, err
	}
	fds, err := filepath.Glob("/proc/[0-9]*/fd/[0-9]*")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, fd := range fds {
		info, err := os.Stat(fd)
		if err != nil || !os.SameFile(info, file) || !locks(fd, lock.at) {
			continue // ended meanwhile, not ours to look at, or another file
		}
		pid, err := strconv.Atoi(strings.Split(fd, "/")[2])
		if err != nil {
			continue
		}
		if pid == os.Getpid() {
			return nil, fmt.Errorf("another call of this process works on the same container ID; try again later")
		}
		if len(pids) == 0 || pids[len(pids)-1] != pid {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// locks tells whether the open file /proc/<pid>/fd/<n> has the lock on one byte,
// from lines of its fdinfo such as
// "lock:	1: OFDLCK ADVISORY  WRITE -1 fe:00:1234 4611 4611".
func locks(fd string, at int64) bool {
	dir, n := filepath.Split(fd)
	text, err := os.ReadFile(filepath.Join(filepath.Dir(filepath.Clean(dir)), "fdinfo", n))
	if err != nil {
		return false
	}
	byteAt := strconv.FormatInt(at, 10)
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) == 9 && f[0] == "lock:" && f[2] == "OFDLCK" && f[7] == byteAt && f[8] == byteAt {
			return true
		}
	}
	return false
}

// endHolders signals the group of each process: a plugin leads one of its own.
// A process in our group, in that of process 1 or in none that can be named
// from here is signalled alone.
func endHolders(pids []int, sig unix.Signal) {
	own := unix.Getpgrp()
	// An error here leaves 0, which is no group that could be signalled.
	first, _ := unix.Getpgid(1)
	for _, pid := range pids {
		if pid <= 1 {
			continue
		}
		target := pid
		if group, err := unix.Getpgid(pid); err == nil && group > 1 && group != own && group != first {
			target = -group
		}
		// One that has ended by now is what is wanted.
		_ = unix.Kill(target, sig)
	}
}
