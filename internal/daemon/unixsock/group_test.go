package unixsock

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// withoutCapChown runs f as root without capabilities and with one supplementary group.
func withoutCapChown(t *testing.T, supplementary uint32, f func()) {
	t.Helper()
	<-asUser(t, 0, []uint32{supplementary}, func() {
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		if err := unix.Capset(&header, &none[0]); err != nil {
			t.Error(err)
		} else {
			f()
		}
	})
}

func TestSocketGroup(t *testing.T) {
	const own, foreign = 60914, 60915
	for name, tt := range map[string]struct {
		group string
		// inherited is the group of a setgid parent directory, 0 for none.
		inherited int
		want      int
		fails     bool
	}{
		"default":               {"", 0, 0, false},
		"group of the process":  {"0", 0, 0, false},
		"supplementary group":   {fmt.Sprint(own), 0, own, false},
		"foreign group":         {fmt.Sprint(foreign), 0, 0, true},
		"inherited foreign one": {fmt.Sprint(foreign), foreign, foreign, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := shortTempDir(t)
			if tt.inherited != 0 {
				check.Must(t, os.Chown(dir, -1, tt.inherited))
				check.Must(t, os.Chmod(dir, 0o755|os.ModeSetgid))
			}
			path := filepath.Join(dir, "s.sock")
			o := Options{Path: path, Group: tt.group}
			withoutCapChown(t, own, func() {
				l, err := listenAt(o)
				if tt.fails {
					check.Error(t, err, "60915", "(it has [0 60914])", "CAP_CHOWN", "supplementalGroups", "runAsGroup",
						"SupplementaryGroups=", "--socket-group")
					return
				}
				if check.NoError(t, err); err != nil {
					return
				}
				var stat unix.Stat_t
				check.NoError(t, unix.Lstat(path, &stat))
				check.Equal(t, "group", int(stat.Gid), tt.want)
				check.NoError(t, l.Close())
			})
			check.Equal(t, "files in the directory", check.Names(t, dir), "")
		})
	}
}
