package process

import (
	"bytes"
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

// findHolders returns the IDs of the processes that have an exclusive lock by another open file than lock's.
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
	// The end of a line such as "lock:	1: OFDLCK ADVISORY  WRITE -1 fe:00:1234 4611 4611".
	held := fmt.Appendf(nil, " WRITE -1 %s %d %[2]d\n", inode, lock.offset)
	var pids []int
	for _, file := range files {
		info, _ := os.ReadFile(file) // which fails if the process has ended
		if !bytes.Contains(info, held) {
			continue
		}
		pid, err := strconv.Atoi(strings.Split(file, "/")[2])
		if err != nil {
			continue
		}
		if pid == os.Getpid() {
			return nil, errors.New("another call of this process works on the same container ID; try again later")
		}
		pids = append(pids, pid)
	}
	return slices.Compact(pids), nil
}

// probeOffset is a byte of the lock file that no container ID locks (lockOffset).
const probeOffset = math.MaxInt64 - 1

// inode returns device and inode of the lock file as the kernel names them in fdinfo, such as
// "fe:00:1234". On overlay file systems stat returns others.
func (l *IDLock) inode() (string, error) {
	probe := IDLock{file: l.file, offset: probeOffset, locks: l.locks}
	if err := probe.set(unix.F_RDLCK); err != nil { // shared with the probes of other calls
		return "", err
	}
	defer func() { _ = probe.set(unix.F_UNLCK) }()
	info, _ := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", l.file.Fd()))
	for line := range strings.Lines(string(info)) {
		if f := strings.Fields(line); len(f) == 9 && f[8] == strconv.Itoa(probeOffset) {
			return f[6], nil
		}
	}
	return "", fmt.Errorf("lock file of plugin calls %s: its locks are not in /proc/self/fdinfo; mount /proc", l.file.Name())
}

// signalHolders signals the process group of each process: a plugin leads its own. A process in
// our group, in the group of process 1 or in one that cannot be named from here is signalled alone.
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
