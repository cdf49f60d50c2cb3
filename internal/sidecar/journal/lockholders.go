package journal

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// ownPID matches the process ID in the description of a holder.
var ownPID = regexp.MustCompile(`PID (\d+)`)

// withHolders adds the visible processes that have the lock to the description of the holder, unless it
// is one of them. Others are children that a killed holder was starting: until its exec a child has a
// copy of each open file. In another PID namespace they are not visible, or have other IDs.
func withHolders(holder string, lock fileID) string {
	pids := lockHolders(lock)
	named := ownPID.FindStringSubmatch(holder)
	if len(pids) == 0 || named != nil && slices.Contains(pids, named[1]) {
		return holder
	}
	return fmt.Sprintf("%s (now held by the process IDs %v)", holder, pids)
}

// lockHolders returns the IDs of the visible processes that have a flock of a file, by lines of fdinfo
// such as "lock:	1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF". On a file system whose device there is
// not that of stat it finds none.
func lockHolders(lock fileID) []string {
	files, _ := filepath.Glob("/proc/[0-9]*/fdinfo/[0-9]*") // the pattern is valid
	inode := fmt.Sprintf("%02x:%02x:%d", unix.Major(lock.device), unix.Minor(lock.device), lock.inode)
	var pids []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the process has ended, or is another user's
		}
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			if len(f) == 9 && f[0] == "lock:" && f[2] == "FLOCK" && f[6] == inode {
				pids = append(pids, strings.Split(file, "/")[2])
			}
		}
	}
	return slices.Compact(pids)
}
