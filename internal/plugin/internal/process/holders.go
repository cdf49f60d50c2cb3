package process

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// findHolders returns the IDs of the processes that have a lock by another open file than lock's.
// The kernel records no process ID for a lock of an open file description, so the fdinfo of every
// open file in /proc is read: that, unlike stat, never waits for the file system of the file, which
// may hang. It is an error if this process is one of them: a call of this run must not be terminated
// by another.
func findHolders(lock *IDLock) ([]int, error) {
	inode, err := lock.inode()
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob("/proc/[0-9]*/fdinfo/[0-9]*")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, file := range files {
		held := func(l heldLock) bool { return l == heldLock{inode, lock.offset} }
		if !slices.ContainsFunc(heldLocks(file), held) {
			continue
		}
		pid, err := strconv.Atoi(strings.Split(file, "/")[2])
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

// probeOffset is a byte of the lock file that no container ID locks (lockOffset).
const probeOffset = math.MaxInt64 - 1

// inode returns device and inode of the lock file as the kernel names them in fdinfo, such as
// "fe:00:1234". On overlay file systems they differ from those of stat.
func (l *IDLock) inode() (string, error) {
	probe := IDLock{file: l.file, offset: probeOffset, locks: l.locks}
	if err := probe.set(unix.F_RDLCK); err != nil { // shared with the probes of other calls
		return "", err
	}
	defer func() { _ = probe.set(unix.F_UNLCK) }()
	for _, held := range heldLocks(fmt.Sprintf("/proc/self/fdinfo/%d", l.file.Fd())) {
		if held.offset == probeOffset {
			return held.inode, nil
		}
	}
	return "", fmt.Errorf("lock file of plugin calls %s: its locks are not in /proc/self/fdinfo; mount /proc", l.file.Name())
}

// heldLock is a lock of an open file description on one byte.
type heldLock struct {
	// inode is device and inode of the file.
	inode  string
	offset int64
}

// heldLocks returns the locks of an open file on single bytes, by lines of its fdinfo such as
// "lock:	1: OFDLCK ADVISORY  WRITE -1 fe:00:1234 4611 4611". An fdinfo that cannot be read, as that of
// a process that has ended, has none.
func heldLocks(fdinfo string) []heldLock {
	text, err := os.ReadFile(fdinfo)
	if err != nil {
		return nil
	}
	var all []heldLock
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) != 9 || f[0] != "lock:" || f[2] != "OFDLCK" || f[7] != f[8] {
			continue
		}
		if offset, err := strconv.ParseInt(f[7], 10, 64); err == nil {
			all = append(all, heldLock{f[6], offset})
		}
	}
	return all
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
