package journal

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// wantSynced fails the test unless every removal is durable, or none is.
func wantSynced(t *testing.T, j *Journal, want bool) {
	t.Helper()
	j.removals.mu.Lock()
	defer j.removals.mu.Unlock()
	if synced := j.removals.synced == j.removals.done; synced != want {
		t.Errorf("%d of %d removals are durable", j.removals.synced, j.removals.done)
	}
}

// A removal that is not durable becomes durable with the next change, a moment later, or at the end.
func TestRemoveSoon(t *testing.T) {
	for name, sync := range map[string]func(t *testing.T, j *Journal){
		"write":   func(t *testing.T, j *Journal) { write(t, j, sample("b")) },
		"removal": func(t *testing.T, j *Journal) { must(t, j.Remove("missing")) },
		"a moment": func(*testing.T, *Journal) {
			time.Sleep(removalSyncDelay)
			synctest.Wait()
		},
		"close": func(t *testing.T, j *Journal) { must(t, j.Close()) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				j := open(t, dir)
				for range 2 { // the second needs another timer
					write(t, j, sample("a"))
					must(t, j.RemoveSoon("a"))
					if _, err := os.Lstat(filepath.Join(dir, attachmentsName, "a.json")); !os.IsNotExist(err) {
						t.Errorf("the record is still there: %v", err)
					}
					wantSynced(t, j, false)
					if sync(t, j); name == "close" {
						wantSynced(t, j, true)
						return
					}
					wantSynced(t, j, true)
				}
			})
		})
	}
	t.Run("sync that began before the removal", func(t *testing.T) {
		var r removals
		before := r.count()
		r.add(func() {})
		r.durable(before, nil)
		if !r.stopTimer() {
			t.Error("the removal counts as durable")
		}
	})
	t.Run("no such record", func(t *testing.T) {
		j := open(t, t.TempDir())
		must(t, j.RemoveSoon("a"))
		if err := j.RemoveSoon("../x"); err == nil {
			t.Error("a path is accepted")
		}
	})
}
