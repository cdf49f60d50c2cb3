package process

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// findHolders returns the IDs of the processes that have a lock by another open file than lock's.
// The kernel records no process ID for a lock of an open file description, so every open file in
// /proc is read. It is an error if this process is one of them: a call of this run must not be
// terminated by another.
func findHolders(lock *IDLock) ([]int, error) {
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
		if err != nil || !os.SameFile(info, file) || !holdsLock(fd, lock.offset) {
			continue // ended meanwhile, not readable, or another file
		}
		pid, err := strconv.Atoi(strings.Split(fd, "/")[2])
		if err != nil {
			continue
		}
		if pid == os.Getpid() {
			return nil, errors.New("another call of this process works on the same container ID; try again later")
		}
		if len(pids) == 0 || pids[len(pids)-1] != pid {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// holdsLock reports whether the open file /proc/<pid>/fd/<n> has the lock on one byte, by lines
// of its fdinfo such as
// "lock:	1: OFDLCK ADVISORY  WRITE -1 fe:00:1234 4611 4611".
func holdsLock(fd string, offset int64) bool {
	dir, n := filepath.Split(fd)
	text, err := os.ReadFile(filepath.Join(filepath.Dir(filepath.Clean(dir)), "fdinfo", n))
	if err != nil {
		return false
	}
	want := strconv.FormatInt(offset, 10)
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) == 9 && f[0] == "lock:" && f[2] == "OFDLCK" && f[7] == want && f[8] == want {
			return true
		}
	}
	return false
}

// signalHolders signals the process group of each process: a plugin leads its own. A process in
// our group, in that of process 1 or in one that cannot be named from here is signalled alone.
func signalHolders(pids []int, sig unix.Signal) {
	own := unix.Getpgrp()
	// An error leaves 0, which no group has.
	initGroup, _ := unix.Getpgid(1)
	for _, pid := range pids {
		if pid <= 1 {
			continue
		}
		target := pid
		if group, err := unix.Getpgid(pid); err == nil && group > 1 && group != own && group != initGroup {
			target = -group
		}
		// An error means that the process has ended.
		_ = unix.Kill(target, sig)
	}
}
