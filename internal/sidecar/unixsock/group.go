package unixsock

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/files"
)

// CheckGroup returns why this process could not give the socket its group, with the remedy; nil if
// it can, or if the group is unknown, which Validate reports. Without CAP_CHOWN the owner of a file
// may give it only a group of which the process is a member (chown(2)).
func (o Options) CheckGroup() error {
	gid, err := groupID(o.Group)
	if err != nil || gid < 0 {
		return nil
	}
	groups, err := processGroups()
	if err == nil && slices.Contains(groups, gid) || hasCapChown() {
		return nil
	}
	return fmt.Errorf("socket %s: %w", o.Path, notMemberError(gid, groups))
}

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
	if errors.Is(err, unix.EPERM) {
		// The groups are for the message only.
		groups, _ := processGroups()
		return fmt.Errorf("%w: %s", notMemberError(gid, groups), err.Error()) // without the remedy of a directory
	}
	if err != nil {
		return fmt.Errorf("set group %d (--socket-group): %w", gid, err)
	}
	return nil
}

// notMemberError describes why a group cannot be set by a process with other groups.
func notMemberError(gid int, groups []int) error {
	all := make([]string, len(groups))
	for i, g := range groups {
		all[i] = fmt.Sprint(g)
	}
	return fmt.Errorf("set group %d (--socket-group): this process is not a member of that group (it has %s) and lacks CAP_CHOWN; "+
		"in Kubernetes add %[1]d to supplementalGroups in the pod's securityContext, or make it runAsGroup of the container; in a systemd unit name it in SupplementaryGroups=",
		gid, strings.Join(all, ", "))
}

// processGroups returns the group and the supplementary groups of this process, sorted.
func processGroups() ([]int, error) {
	groups, err := os.Getgroups()
	groups = append(groups, os.Getegid())
	slices.Sort(groups)
	return slices.Compact(groups), err
}

// hasCapChown reports whether CAP_CHOWN is effective in the calling thread.
func hasCapChown() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	return unix.Capget(&header, &data[0]) == nil && data[0].Effective&(1<<unix.CAP_CHOWN) != 0
}
