package faults

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// rewrite returns a function that changes the content of a file.
func rewrite(change func([]byte) []byte) func(string) error {
	return func(file string) error {
		data, err := os.ReadFile(file)
		return errors.Join(err, os.WriteFile(file, change(data), 0o600))
	}
}

// ofRouter returns a function that changes the value of the router's record in a journal.
func ofRouter(change func(value []byte) []byte) func(string) error {
	return func(file string) error {
		db, err := bbolt.Open(file, 0o600, nil)
		if err != nil {
			return err
		}
		err = db.Update(func(tx *bbolt.Tx) error {
			records, key := tx.Bucket([]byte("records")), []byte("default\x00router")
			return records.Put(key, change(slices.Clone(records.Get(key))))
		})
		return errors.Join(err, db.Close())
	}
}

// flipBit flips a bit of the address in a record.
func flipBit(value []byte) []byte {
	value[bytes.Index(value, []byte("10.15.0."))+len("10.15.0.")] ^= 1
	return value
}

//evidence:design/reliability Damaged records
func TestDamagedRecord(t *testing.T) {
	eachCase(t, damagedRecords, map[string]func(value []byte) []byte{
		"bit-flipped":        flipBit,
		"zeros":              func(value []byte) []byte { return make([]byte, len(value)) },
		"empty":              func([]byte) []byte { return nil },
		"torn":               func(value []byte) []byte { return value[:200] },
		"without a checksum": func(value []byte) []byte { return value[9:] },
	}, func(t *testing.T, _ *stats, damage func([]byte) []byte) {
		n, router, health := stoppedNode(t)
		check.Must(t, ofRouter(damage)(journalFile(n)))
		n.ResetHistory() // the addresses of the router are unknown now

		s := n.Start(t)
		wantQuarantined(t, s, "checksum")
		wantHeld(t, s, "health", health)
		// The addresses of the damaged record are allocated to no other owner.
		wantNotGiven(t, s, "ingress", router)
		s.AllocateFor(t, "router")
		s.WaitConsistent(t)
	})
}

// newestMeta returns the offset of the meta page of the last transaction.
func newestMeta(data []byte) int {
	const page, transaction = 4096, 64
	if number := func(i int) uint64 { return binary.NativeEndian.Uint64(data[i*page+transaction:]) }; number(1) > number(0) {
		return page
	}
	return 0
}

// fileFault damages the file of a journal, which the next start quarantines for a reason.
type fileFault struct {
	damage func(file string) error
	reason string
}

// After it, the addresses are found in the plugin's store.
//
//evidence:design/reliability Damaged journal
func TestDamagedJournal(t *testing.T) {
	eachCase(t, damagedRecords, map[string]fileFault{
		"truncated": {rewrite(func(data []byte) []byte { return data[:9000] }), "beyond the end"},
		"empty":     {rewrite(func([]byte) []byte { return nil }), "beyond the end"},
		"zeros":     {rewrite(func(data []byte) []byte { return make([]byte, len(data)) }), "meta page"},
		"a hole where records were": {rewrite(func(data []byte) []byte {
			for at := 2 * 4096; at < len(data); at += 4096 {
				if bytes.Contains(data[at:at+4096], []byte(`"owner":"router"`)) {
					clear(data[at : at+4096])
				}
			}
			return data
		}), "has the number 0"},
		"the newest meta page": {rewrite(func(data []byte) []byte { data[newestMeta(data)+60] ^= 4; return data }), "meta page"},
		"an older transaction": {rewrite(func(data []byte) []byte { // is the newest
			at := newestMeta(data)
			copy(data[at+16:at+4096], data[4096-at+16:])
			return data
		}), "transactions"},
		"a record is missing": {func(file string) error {
			db, err := bbolt.Open(file, 0o600, nil)
			if err != nil {
				return err
			}
			remove := func(tx *bbolt.Tx) error { return tx.Bucket([]byte("records")).Delete([]byte("default\x00router")) }
			return errors.Join(db.Update(remove), db.Close())
		}, "1 of 2 records"},
		"replaced by a directory": {func(file string) error {
			return errors.Join(os.Remove(file), os.MkdirAll(filepath.Join(file, "full"), 0o700))
		}, "not a regular file"},
		"replaced by a symlink": {func(file string) error {
			outside := filepath.Join(filepath.Dir(file), "../copy")
			return errors.Join(os.Rename(file, outside), os.Symlink(outside, file))
		}, "not a regular file"},
	}, func(t *testing.T, _ *stats, f fileFault) {
		n, router, health := stoppedNode(t)
		check.Must(t, f.damage(journalFile(n)))

		s := n.Start(t)
		wantQuarantined(t, s, f.reason)
		s.WaitLog(t, "level=error")
		wantNotGiven(t, s, "ingress", slices.Concat(router, health))
		wantHeld(t, s, "router", router)
		wantHeld(t, s, "health", health)
		s.WaitConsistent(t)
		s.Stop(t)
		s = n.Start(t)
		wantHeld(t, s, "router", router)
		if got := s.Health(t).DelegatedIPAM.Quarantined; len(got) != 1 {
			t.Errorf("after another start health has the quarantined files %+v; want one", got)
		}
	})
}

// The mapping of a file that is cut off faults. The daemon goes on, and its next start quarantines the file.
//
//evidence:design/reliability truncated while the daemon runs
func TestJournalTruncated(t *testing.T) {
	st := oneCase(t, damagedRecords)
	n := nodeWith(t)
	s := n.Start(t)
	router := s.AllocateFor(t, "router")
	check.Must(t, os.Truncate(journalFile(n), 0))
	for range 3 {
		s.TryAllocate(t, harness.Request{Owner: "health"}).WantError(t, http.StatusBadGateway, "journal.db")
	}
	s.WaitNotReady(t, "restart the daemon")
	wantHeld(t, s, "router", router)
	s.Kill(t)
	st.kills.Add(1)
	s = n.Start(t)
	wantQuarantined(t, s, "damaged")
	wantHeld(t, s, "router", router)
	s.AllocateFor(t, "health")
	s.WaitConsistent(t)
}

//evidence:design/reliability a journal of a newer version
func TestNewerJournal(t *testing.T) {
	oneCase(t, damagedRecords)
	n, router, _ := stoppedNode(t)
	present, err := os.ReadFile(journalFile(n))
	check.Must(t, err)
	db, err := bbolt.Open(journalFile(n), 0o600, nil)
	check.Must(t, err)
	check.Must(t, db.Update(func(tx *bbolt.Tx) error {
		const text, sum = `{"format":99}`, "14d46c2e"
		return tx.Bucket([]byte("metadata")).Put([]byte("file"), []byte(sum+" "+text))
	}))
	check.Must(t, db.Close())
	newer, err := os.ReadFile(journalFile(n))
	check.Must(t, err)
	before := n.Leases(t)

	n.Launch(t).WantStartFailure(t, "format 99", "start the version that has written it")
	wantLeases(t, n, before)
	if now, err := os.ReadFile(journalFile(n)); err != nil || !bytes.Equal(now, newer) {
		t.Errorf("the journal was changed, %v", err)
	}

	// The newer program would find it as it was.
	check.Must(t, os.WriteFile(journalFile(n), present, 0o600))
	wantHeld(t, n.Start(t), "router", router)
}

//evidence:design/reliability a link or a directory planted at the path of a new journal
func TestJournalPathOccupied(t *testing.T) {
	oneCase(t, damagedRecords)
	n, router, _ := stoppedNode(t)
	outside := filepath.Join(n.Dir, "outside")
	check.Must(t, os.WriteFile(outside, []byte("content"), 0o600))
	check.Must(t, os.Symlink(outside, journalFile(n)+".new"))
	s := n.Start(t)
	wantHeld(t, s, "router", router)
	s.Stop(t)
	if data, err := os.ReadFile(outside); err != nil || string(data) != "content" {
		t.Errorf("the target of the symlink was changed to %q, %v", data, err)
	}

	check.Must(t, os.MkdirAll(filepath.Join(journalFile(n)+".new", "full"), 0o700))
	n.Launch(t).WantStartFailure(t, "journal.db", "file exists")
	check.Must(t, os.RemoveAll(journalFile(n)+".new"))
	s = n.Start(t)
	wantHeld(t, s, "router", router)
	s.WaitConsistent(t)
}
