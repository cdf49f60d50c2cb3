package unixsock

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/files"
)

// setGroup gives a socket a group; -1 keeps the one that it has.
func setGroup(socket string, gid int) error {
	info, err := os.Lstat(socket)
	if err != nil {
		return err
	}
	if _, now := ownerOf(info); gid < 0 || gid == now {
		return nil
	}
	err = files.Cause(os.Lchown(socket, -1, gid))
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EPERM):
		if err := checkMember(gid); err != nil {
			return err
		}
	}
	return fmt.Errorf("set group %d (--socket-group): %w", gid, err)
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
