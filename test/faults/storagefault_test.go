package faults

import (
	"maps"
	"net/http"
	"os"
	"slices"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// storageFault is a fault of the state directory of a running sidecar.
type storageFault struct {
	// prepare is called before the sidecar starts, unless it is nil.
	prepare func(t *testing.T, n *harness.Node)
	// inject causes the fault and returns a function that removes it.
	inject func(t *testing.T, n *harness.Node, s *harness.Sidecar) (undo func())
	// err must be in every error response and in readiness.
	err string
	// replacement returns the directory at the path of the original one during the fault; nil if
	// there is none.
	replacement func(n *harness.Node) string
}

// otherDir is the error for a directory that is not the one that the sidecar has opened.
const otherDir = "another directory or file system"

func storageFaults() map[string]storageFault {
	return map[string]storageFault{
		"no space": {
			func(t *testing.T, n *harness.Node) { mountSmall(t, n.StateDir) },
			fillDisk, "no space left on device", nil,
		},
		"read-only": {
			// Not the whole state directory: Linux refuses to remount a file system read-only while
			// a file in it, the lock, is open for writing.
			func(t *testing.T, n *harness.Node) { mountSmall(t, attachments(n)) },
			makeReadOnly, "read-only file system", nil,
		},
		"permission":                      {dropCapabilities, removeWritePermission, "permission denied", nil},
		"I/O error":                       {nil, failFsync, "input/output error", nil},
		"moved away":                      {nil, moveAway, "no such file or directory", nil},
		"replaced by a symlink":           {nil, replaceBySymlink(stateDir), "symbolic link", nil},
		"records replaced by a symlink":   {nil, replaceBySymlink(attachments), "symbolic link", nil},
		"replaced by a file":              {nil, replaceByFile, "another file", nil},
		"replaced by a directory":         {nil, replaceByDir(stateDir), otherDir, stateDir},
		"records replaced by a directory": {nil, replaceByDir(attachments), otherDir, attachments},
		"mounted over":                    {nil, mountOver(stateDir), otherDir, stateDir},
		"records mounted over":            {nil, mountOver(attachments), otherDir, attachments},
		"unmounted":                       {mountStateDir, unmount, otherDir, stateDir},
	}
}

//evidence:design/reliability Storage faults
func TestStorageFault(t *testing.T) {
	t.Parallel()
	st := newStats(t, storage)
	for name, f := range storageFaults() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st.countCase(t)
			n := nodeWith(t)
			if f.prepare != nil {
				f.prepare(t, n)
			}
			s := n.Start(t)
			held := s.AllocateFor(t, "router")
			released := s.AllocateFor(t, "health")
			before := n.Leases(t)
			original, err := os.OpenRoot(n.StateDir)
			harness.Must(t, err)
			defer original.Close()
			records := contents(t, original.FS())

			undo := f.inject(t, n, s)
			s.WaitNotReady(t, f.err)
			s.TryAllocate(t, harness.Request{Owner: "ingress"}).WantError(t, http.StatusBadGateway, f.err)
			s.TryRelease(t, released[0]).WantError(t, http.StatusInternalServerError, f.err)
			s.TryRestore(t, "10.15.0.77", "restored").WantError(t, http.StatusInternalServerError, f.err)
			// A request for a held address needs no write and still succeeds.
			wantHeld(t, s, "router", held)
			if now := n.Leases(t); !slices.Equal(now, before) {
				t.Errorf("the plugin's store was %v and is %v; want no change", before, now)
			}
			if f.replacement != nil {
				if found := contents(t, os.DirFS(f.replacement(n))); len(found) > 0 {
					t.Errorf("the replacement has %q; want it empty", found)
				}
				if now := contents(t, original.FS()); f.replacement(n) == n.StateDir && !maps.Equal(now, records) {
					t.Errorf("the original directory had %q and has %q", records, now)
				}
			}

			undo()
			s.WaitReady(t)
			wantHeld(t, s, "router", held)
			s.Release(t, released...)
			ingress := s.AllocateFor(t, "ingress")
			s.TryRestore(t, "10.15.0.77", "restored").WantStatus(t, http.StatusOK)
			s.WaitConsistent(t)

			// The journal has all of this on disk.
			s.Kill(t)
			st.addKills(1)
			s = n.Start(t)
			s.WaitConsistent(t)
			wantNoQuarantine(t, s)
			wantHeld(t, s, "router", held)
			wantHeld(t, s, "ingress", ingress)
			if a := s.Attachment(t, "health"); a != nil {
				t.Errorf("the released attachment is listed again: %+v", a)
			}
		})
	}
}

// The original directory does not return, so every change is refused until a restart uses the
// replacement.
func TestStateDirReplaced(t *testing.T) {
	t.Parallel()
	st := newStats(t, storage)
	for name, f := range map[string]storageFault{
		"recreated": {inject: recreate},
		"unmounted": {prepare: mountStateDir, inject: unmount},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st.countCase(t)
			n := nodeWith(t)
			if f.prepare != nil {
				f.prepare(t, n)
			}
			s := n.Start(t)
			held := s.AllocateFor(t, "router")

			f.inject(t, n, s)
			s.WaitNotReady(t, otherDir)
			s.TryAllocate(t, harness.Request{Owner: "ingress"}).WantError(t, http.StatusBadGateway, otherDir)
			s.TryRelease(t, held[0]).WantError(t, http.StatusInternalServerError, otherDir)
			if found := contents(t, os.DirFS(n.StateDir)); len(found) > 0 {
				t.Errorf("the replacement has %q; want it empty", found)
			}
			s.Kill(t)
			st.addKills(1)

			n.ResetHistory() // the journal is lost
			s = n.Start(t)
			if list := s.List(t); len(list) > 0 {
				t.Errorf("the list has %+v; want it empty", list)
			}
			s.AllocateFor(t, "router")
			s.WaitConsistent(t)
		})
	}
}
