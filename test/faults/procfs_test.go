package faults

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// socketInodes returns the inodes of the sidecar's open sockets (proc_pid_fd(5)).
func socketInodes(t *testing.T, s *harness.Sidecar) []string {
	t.Helper()
	var inodes []string
	for _, target := range openFiles(t, s) {
		if inode, ok := strings.CutPrefix(target, "socket:["); ok {
			inodes = append(inodes, strings.TrimSuffix(inode, "]"))
		}
	}
	return inodes
}

// socketLines returns the sockets of a protocol in the sidecar's network namespace
// (proc_pid_net(5)).
func socketLines(t *testing.T, s *harness.Sidecar, protocol string) []string {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", s.PID(), protocol))
	if os.IsNotExist(err) {
		return nil // the kernel lacks IPv6
	}
	harness.Must(t, err)
	return strings.Split(string(data), "\n")
}

// openFiles returns the targets of the sidecar's descriptors (proc_pid_fd(5)).
func openFiles(t *testing.T, s *harness.Sidecar) []string {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", s.PID())
	entries, err := os.ReadDir(dir)
	harness.Must(t, err)
	var open []string
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join(dir, e.Name()))
		if errors.Is(err, os.ErrNotExist) {
			continue // closed since the directory was read
		}
		harness.Must(t, err)
		open = append(open, target)
	}
	return open
}

// connections returns the number of open connections on the sidecar's socket.
func connections(t *testing.T, s *harness.Sidecar) int {
	t.Helper()
	const connected = "03"
	ours, open := socketInodes(t, s), 0
	for _, line := range socketLines(t, s, "unix") {
		if f := strings.Fields(line); len(f) > 6 && f[5] == connected && slices.Contains(ours, f[6]) {
			open++
		}
	}
	return open
}

// peakMemory returns the sidecar's peak resident memory in bytes (proc_pid_status(5), VmHWM).
func peakMemory(t *testing.T, s *harness.Sidecar) int {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.PID()))
	if err != nil {
		t.Fatal(err)
	}
	for text := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(text, "VmHWM:"); ok {
			kib, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")))
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Fatalf("no VmHWM in %s", data)
	return 0
}
