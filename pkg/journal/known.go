package journal

import (
	"maps"
	"sync"

	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

// known are the records as they were last read or written with success: what a
// state folder is filled with that takes the place of ours. They are shared with
// those who wrote or loaded them, and never changed.
type known struct {
	mu      sync.Mutex
	records map[string]record.Record
}

func newKnown() *known { return &known{records: map[string]record.Record{}} }

func (k *known) remember(r record.Record) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.records[r.ContainerID] = r
}

func (k *known) forget(containerID string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.records, containerID)
}

func (k *known) clear() {
	k.mu.Lock()
	defer k.mu.Unlock()
	clear(k.records)
}

// all returns them by container ID.
func (k *known) all() map[string]record.Record {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.records)
}
