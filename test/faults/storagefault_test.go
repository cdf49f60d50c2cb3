package faults

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// storageFault is a fault of the state directory of a running daemon.
type storageFault struct {
	// prepare is called before the daemon starts, unless it is nil.
	prepare func(t *testing.T, n *harness.Node)
	inject  injection
	// err must be in every error response and in readiness.
	err string
	// replacement returns the directory in place of the original one; nil if there is none.
	replacement func(n *harness.Node) string
}

// otherDir is the error for a directory that is not the one that the daemon has opened.
const otherDir = "another directory or file system"

// noSpace is the error of a disk without space for another record. Those that there are can be changed.
const noSpace = "no space left on device"

//evidence:design/reliability Storage faults
func TestStorageFault(t *testing.T) {
	eachCase(t, storage, map[string]storageFault{
		"no space": {func(t *testing.T, n *harness.Node) { mountSmall(t, n.StateDir) }, fillDiskAndJournal, noSpace, nil},
		// Not by a remount, which Linux refuses while a file is open for writing: the kernel itself does it
		// after an error of the disk.
		"read-only":                       {nil, failCalls("pwrite64", "EROFS"), "read-only file system", nil},
		"over quota":                      {nil, failCalls("pwrite64", "EDQUOT"), "disk quota exceeded", nil},
		"I/O error":                       {nil, failCalls("fsync,fdatasync", "EIO"), "input/output error", nil},
		"moved away":                      {nil, replace(stateDir, nothing), "no such file or directory", nil},
		"replaced by a symlink":           {nil, replace(stateDir, symlink), "symbolic link", nil},
		"journal replaced by a symlink":   {nil, replace(journalFile, symlink), "symbolic link", nil},
		"replaced by a file":              {nil, replace(stateDir, emptyFile), "another file", nil},
		"replaced by a directory":         {nil, replace(stateDir, emptyDir), otherDir, stateDir},
		"journal replaced by a directory": {nil, replace(journalFile, emptyDir), otherDir, nil},
		"journal replaced by a file":      {nil, replace(journalFile, emptyFile), "another file", nil},
		"journal removed":                 {nil, replace(journalFile, nothing), "no such file or directory", nil},
		"mounted over":                    {nil, mountOver(stateDir), otherDir, stateDir},
		"unmounted":                       {mountStateDir, unmount, otherDir, stateDir},
	}, func(t *testing.T, st *stats, f storageFault) {
		n := nodeWith(t)
		if f.prepare != nil {
			f.prepare(t, n)
		}
		s := n.Start(t)
		held := s.AllocateFor(t, "router")
		released := s.AllocateFor(t, "health")
		original, err := os.OpenRoot(n.StateDir)
		check.Must(t, err)
		defer original.Close()
		records := contents(t, original.FS())

		undo := f.inject(t, n, s)
		before := n.Leases(t)
		s.WaitNotReady(t, f.err)
		s.TryAllocate(t, harness.Request{Owner: "ingress"}).WantError(t, http.StatusBadGateway, f.err)
		if f.err == noSpace {
			s.Release(t, released[0])
			released, before = released[1:], n.Leases(t)
		} else {
			s.TryRelease(t, released[0]).WantError(t, http.StatusInternalServerError, f.err)
		}
		s.TryRestore(t, "10.15.0.250", "restored").WantError(t, http.StatusInternalServerError, f.err)
		// A request for a held address needs no write and still succeeds.
		wantHeld(t, s, "router", held)
		wantLeases(t, n, before)
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
		s.TryRestore(t, "10.15.0.250", "restored").WantStatus(t, http.StatusOK)
		s.WaitConsistent(t)

		// The journal has all of this on disk.
		s.Kill(t)
		st.kills.Add(1)
		s = n.Start(t)
		s.WaitConsistent(t)
		wantQuarantined(t, s, "")
		wantHeld(t, s, "router", held)
		wantHeld(t, s, "ingress", ingress)
		if a := s.Attachment(t, "health"); a != nil {
			t.Errorf("the released attachment is listed again: %+v", a)
		}
	})
}

// fillDiskAndJournal fills the disk, and then the journal by attachments that are released when there is space again.
func fillDiskAndJournal(t *testing.T, n *harness.Node, s *harness.Daemon) func() {
	free := fillDisk(t, n, s)
	var filled []string
	for {
		a := s.TryAllocate(t, harness.Request{Owner: fmt.Sprint("default/filler-", len(filled))})
		if a.Status != http.StatusCreated {
			a.WantError(t, http.StatusBadGateway, noSpace)
			break
		}
		filled = append(filled, a.Allocation(t).Addresses()...)
	}
	if len(filled) < 20 {
		t.Errorf("the journal had space for %d addresses on a full disk; want some", len(filled))
	}
	return func() {
		free()
		s.WaitReady(t)
		s.Release(t, filled...)
	}
}

// wantLeases wants no change in the plugin's store.
func wantLeases(t *testing.T, n *harness.Node, before []oracle.Lease) {
	t.Helper()
	if now := n.Leases(t); !slices.Equal(now, before) {
		t.Errorf("the plugin's store was %v and is %v; want no change", before, now)
	}
}

// In the next two tests the write after a plugin call fails: the plugin is ahead of the journal.

//evidence:design/reliability the disk fails while ADD runs
func TestDiskFailsDuringADD(t *testing.T) {
	oneCase(t, storage)
	f := newPluginFixture(t, "host-local")
	a := f.failDuring(t, "ADD", http.MethodPost, "/v1/ipam?owner=router", func() { f.wantState(t, "router", "adding") })
	a.WantError(t, http.StatusBadGateway, "the journal could not be written")
	f.AllocateFor(t, "router")
	f.WaitConsistent(t)
	f.wantOther(t)
}

//evidence:design/reliability the disk fails while DEL runs
func TestDiskFailsDuringDEL(t *testing.T) {
	oneCase(t, storage)
	f := newPluginFixture(t, "host-local")
	a := f.failDuring(t, "DEL", http.MethodDelete, "/v1/ipam/"+otherAddress, func() { f.wantState(t, "other", "releasing") })
	a.WantError(t, http.StatusInternalServerError, "the record could not be removed")
	f.releaseOther(t)
	f.wantState(t, "other", none)
	f.WaitConsistent(t)
}

// failDuring sends a request, moves the state directory away while the verb runs, calls meanwhile, and
// restores the directory. It returns the response.
func (f pluginFixture) failDuring(t *testing.T, verb, method, path string, meanwhile func()) harness.Response {
	t.Helper()
	before := f.plugin.CallCount(t, verb)
	f.plugin.SetScript(t, verb, `{"times":1,"gate":"go"}`)
	pending := make(chan answered, 1)
	go func() {
		a, err := f.Try(method, path)
		pending <- answered{a, err}
	}()
	f.plugin.WaitCall(t, verb, before)
	back := replace(stateDir, nothing)(t, f.node, f.Daemon)
	f.plugin.Open(t, "go")
	a := <-pending
	check.Must(t, a.err)
	meanwhile()
	back()
	return a.Response
}

func TestStartWithoutStateDir(t *testing.T) {
	eachCase(t, storage, map[string]storageFault{
		"replaced by a file":    {inject: replace(stateDir, emptyFile), err: "not a directory"},
		"replaced by a symlink": {inject: replace(stateDir, symlink), err: "symbolic link"},
		"read-only":             {func(t *testing.T, n *harness.Node) { mountSmall(t, n.StateDir) }, makeReadOnly(stateDir), "read-only file system", nil},
	}, func(t *testing.T, _ *stats, f storageFault) {
		n := nodeWith(t)
		check.Must(t, os.MkdirAll(n.StateDir, 0o700))
		if f.prepare != nil {
			f.prepare(t, n)
		}
		undo := f.inject(t, n, nil)
		s := n.Launch(t)
		s.WantStartFailure(t, f.err)

		undo()
		s = n.Start(t)
		s.AllocateFor(t, "router")
		s.WaitConsistent(t)
	})
}

// The journal may be intact, so no owner may lose its addresses.
//
//evidence:design/reliability unreadable journal at start (permission)
//evidence:design/reliability I/O error on read at start, or another error of the system
func TestStartWithUnreadableJournal(t *testing.T) {
	removePermission := func(t *testing.T, n *harness.Node, file string) func() {
		dropCapabilities(t, n)
		check.Must(t, os.Chmod(file, 0))
		return func() { check.Must(t, os.Chmod(file, 0o600)) }
	}
	type unreadable struct {
		spoil func(t *testing.T, n *harness.Node, file string) (undo func())
		err   string
	}
	eachCase(t, storage, map[string]unreadable{
		"permission": {removePermission, "permission denied"},
		"I/O error":  {failReads, "input/output error"},
	}, func(t *testing.T, _ *stats, f unreadable) {
		n, router, health := stoppedNode(t)
		before := n.Leases(t)

		undo := f.spoil(t, n, journalFile(n))
		s := n.Launch(t)
		s.WantStartFailure(t, journalFile(n), f.err, "start again")
		wantLeases(t, n, before)

		undo()
		s = n.Start(t)
		wantQuarantined(t, s, "")
		s.WaitConsistent(t)
		wantHeld(t, s, "router", router)
		wantHeld(t, s, "health", health)
	})
}

// Without space a release frees the address and its record; without permission for the directory the daemon serves on,
// because it has its file open.
//
//evidence:design/reliability permission of the directory removed while it serves
func TestReleaseWithoutNewFiles(t *testing.T) {
	eachCase(t, storage, map[string]storageFault{
		"no space":   {func(t *testing.T, n *harness.Node) { mountSmall(t, n.StateDir) }, fillDisk, "", nil},
		"permission": {dropCapabilities, removeWritePermission, "", nil},
	}, func(t *testing.T, _ *stats, f storageFault) {
		n := nodeWith(t)
		f.prepare(t, n)
		s := n.Start(t, "--enable-ipv6=false")
		held := s.AllocateFor(t, "router")
		undo := f.inject(t, n, s)
		s.Release(t, held[0])
		wantLeases(t, n, nil)
		if a := s.Attachment(t, "router"); a != nil {
			t.Errorf("listed is %+v", a)
		}
		undo()
		s.WaitReady(t)
		s.WaitConsistent(t)
	})
}

// The journal cannot be written anew, so nothing is served, and nothing is lost.
//
//evidence:design/reliability no space at start
func TestStartOnFullDisk(t *testing.T) {
	st := oneCase(t, storage)
	n := nodeWith(t)
	mountSmall(t, n.StateDir)
	s := n.Start(t)
	held := s.AllocateFor(t, "router")
	before := n.Leases(t)
	s.Kill(t)
	st.kills.Add(1)
	undo := fillDisk(t, n, nil)

	n.Launch(t).WantStartFailure(t, journalFile(n), noSpace, "free space")
	wantLeases(t, n, before)
	undo()
	s = n.Start(t)
	wantHeld(t, s, "router", held)
	s.AllocateFor(t, "health")
	s.WaitConsistent(t)
	s.Stop(t)
}
