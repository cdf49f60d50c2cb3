package journal

import (
	"sync"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/failpoint"
)

// removalSyncDelay is how long a removal waits for a write that makes it durable.
const removalSyncDelay = 100 * time.Millisecond

// removals counts the removals by RemoveSoon, and those that a sync of the directory has made durable.
type removals struct {
	mu           sync.Mutex
	done, synced uint64
	timer        *time.Timer // runs while a removal may wait for its sync; otherwise nil
}

// add counts a removal that is done, and calls sync after removalSyncDelay.
func (r *removals) add(sync func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done++
	if r.timer == nil {
		r.timer = time.AfterFunc(removalSyncDelay, sync)
	}
}

func (r *removals) count() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.done
}

// durable records that a sync has ended, before which there were so many removals.
func (r *removals) durable(before uint64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.synced = max(r.synced, before)
	}
}

func (r *removals) stopTimer() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil
	}
}

// pending reports whether a removal is not durable.
func (r *removals) pending() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.synced < r.done
}

// syncRemovals makes the removals durable that no write has made durable. After an error the next write
// does: a record that comes back is only released again.
func (j *Journal) syncRemovals() {
	j.mu.RLock()
	defer j.mu.RUnlock()
	j.removals.stopTimer()
	_ = j.syncPending()
}

// syncPending syncs the directory if a removal is not durable.
func (j *Journal) syncPending() error {
	if !j.removals.pending() {
		return nil
	}
	entries, err := j.attachments.self()
	if err != nil {
		return err
	}
	defer entries.Close()
	failpoint.Reach(failpoint.RemoveSyncing)
	removed := j.removals.count()
	err = entries.Sync()
	j.removals.durable(removed, err)
	failpoint.Reach(failpoint.RemoveDurable)
	return err
}
