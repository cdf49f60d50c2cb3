package sidecar

import (
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/engine"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

// writes is a journal that keeps the last record.
type writes struct {
	engine.Journal
	last record.Record
}

func (w *writes) Write(r record.Record) error { w.last = r; return nil }

func TestDefaultPoolInJournal(t *testing.T) {
	for _, tt := range []struct{ option, inMemory, onDisk string }{
		{"default", "default", "default"},
		{"default", "red", "red"},
		{"blue", "blue", "default"},
		{"blue", "red", "red"},
	} {
		disk := &writes{}
		if err := (unnamedDefaultPool{disk, tt.option}).Write(record.Record{Pool: tt.inMemory}); err != nil || disk.last.Pool != tt.onDisk {
			t.Errorf("--ipam-default-ip-pool=%s: pool %s is written as %q, %v; want %q", tt.option, tt.inMemory, disk.last.Pool, err, tt.onDisk)
		}
		loaded := journal.Loaded{Records: []record.Record{{Pool: tt.onDisk}}, FutureVersions: []journal.FutureVersion{{Pool: tt.onDisk}}}
		nameDefaultPool(loaded, tt.option)
		if got := loaded.Records[0].Pool; got != tt.inMemory || loaded.FutureVersions[0].Pool != got {
			t.Errorf("--ipam-default-ip-pool=%s: pool %s is read as %q; want %q", tt.option, tt.onDisk, got, tt.inMemory)
		}
	}
}
