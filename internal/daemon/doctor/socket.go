package doctor

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/unixsock"
	"github.com/delegated-ipam/delegated-ipam/internal/files"
)

// checkSocket checks that other users of the node can neither connect to the socket nor replace it.
func checkSocket(o *Observations, r *report) {
	path, mode := o.Config.SocketPath, o.Config.SocketMode
	if !inEmptyDir(files.MountOf(filepath.Dir(path))) { // only the pod has access to it
		if err := unixsock.CheckParentMode(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			r.warn("remove the write permission of group and others from the directory (chmod go-w)", "%s", err)
		}
	}
	if info, err := os.Lstat(path); err == nil {
		mode = info.Mode()
	}
	if mode&0o002 != 0 {
		r.warn("set --socket-mode=0660, and --socket-group for other authorized users",
			"%s is world-writable (mode %04o): each user of the node can connect and read the status; only the check of the UID prevents more", path, mode.Perm())
	}
	if r.clean() {
		r.ok("only owner and group can connect to %s (mode %04o)", path, mode.Perm())
	}
}
