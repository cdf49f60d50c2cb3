// Package uninstall removes the state directory and the socket of a sidecar from its node.
package uninstall

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/files"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/unixsock"
)

// Options configure an uninstallation.
type Options struct {
	// StateDir and SocketPath are those of the sidecar, absolute.
	StateDir, SocketPath string
	// PodName is the pod of this process, empty outside of one.
	PodName string
	// OtherFiles are the names of the files in the state directory that are not the journal's.
	OtherFiles []string
	// DiscardQuarantine also removes the quarantined files, which may name held addresses.
	DiscardQuarantine bool
	// Timeout is how long to wait for the end of the sidecar; 0 for no limit.
	Timeout time.Duration
	// OnWait is called with the process that holds the state directory.
	OnWait func(holder string)
}

// Run waits for the end of the sidecar, then removes the state directory and the socket. It returns
// the removed paths, also with an error. It fails if an attachment exists (*journal.InUseError), if
// the sidecar does not end, and if the directory has foreign files, which stay. A second run completes
// the first one. Without directory and socket it succeeds.
func Run(ctx context.Context, o Options) (removed []string, err error) {
	if o.Timeout > 0 {
		limited, cancel := context.WithTimeoutCause(ctx, o.Timeout, fmt.Errorf("waited for %s; delete the sidecar's pod or stop its service, and run the command again", o.Timeout))
		defer cancel()
		ctx = limited
	}
	state, err := journal.RemoveStateDir(ctx, o.StateDir, journal.RemoveOptions{
		Options: journal.Options{MachineID: journal.Host{}.MachineID()}, OtherFiles: o.OtherFiles,
		DiscardQuarantine: o.DiscardQuarantine, KeepDir: files.MountOf(o.StateDir).Point == o.StateDir,
		Self: journal.Holder{Pod: o.PodName, Started: time.Now()}, OnWait: o.OnWait,
	})
	if err != nil {
		return state.Removed, err
	}
	if len(state.Foreign) > 0 {
		err = fmt.Errorf("state directory %s: %d files do not belong to delegated-ipam and stay:\n  %s", o.StateDir, len(state.Foreign), strings.Join(state.Foreign, "\n  "))
	}
	socket, socketErr := unixsock.Remove(o.SocketPath)
	return append(state.Removed, socket...), errors.Join(err, socketErr)
}
