package unixsock

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// setGroup gives the file of a descriptor a group.
func setGroup(fd, gid int) error {
	err := unix.Fchownat(fd, "", -1, gid, unix.AT_EMPTY_PATH)
	if errors.Is(err, unix.EPERM) {
		if err := checkMember(gid); err != nil {
			return err
		}
	}
	if err != nil {
		return fmt.Errorf("set group %d (--socket-group): %w", gid, err)
	}
	return nil
}

// checkMember returns why this process may not give its file a group, with the remedy; nil if it may. Without CAP_CHOWN
// it may give it only a group of which it is a member (chown(2)).
func checkMember(gid int) error {
	groups, err := os.Getgroups()
	groups = append(groups, os.Getegid())
	if err == nil && slices.Contains(groups, gid) || hasCapChown() {
		return nil
	}
	slices.Sort(groups)
	return fmt.Errorf("set group %d (--socket-group): this process is not a member of that group (it has %v) and lacks CAP_CHOWN; "+
		"in Kubernetes add %[1]d to supplementalGroups in the pod's securityContext, or make it runAsGroup of the container; in a systemd unit name it in SupplementaryGroups=",
		gid, slices.Compact(groups))
}

// hasCapChown reports whether CAP_CHOWN is effective in the calling thread.
func hasCapChown() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	return unix.Capget(&header, &data[0]) == nil && data[0].Effective&(1<<unix.CAP_CHOWN) != 0
}
