package faults

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// rebootOwners is how many cases share a node, and rebootSteps what each of them does.
const rebootOwners, rebootSteps = 30, 4

// rebootBatches is how many batches of rebootOwners cases are played.
func (s share) rebootBatches() int {
	if s == full {
		return 200
	}
	return 2
}

func TestRebootsAtRandomLoseNothingAndGiveNothingUp(t *testing.T) {
	t.Parallel()
	count := newTally(t, rebootsAtRandom)
	for i := range wantedShare(t).rebootBatches() {
		t.Run(fmt.Sprintf("batch %d", i), func(t *testing.T) {
			t.Parallel()
			count.watchMany(t, rebootOwners)
			if i%3 == 1 {
				rebootOverServer(t, count, uint64(i))
				return
			}
			rebootOverHostLocal(t, count, uint64(i))
		})
	}
}

// rebootOverServer reboots a node whose plugin keeps everything elsewhere.
func rebootOverServer(t *testing.T, count *tally, number uint64) {
	t.Helper()
	l := newLateBatch(t, number, rebootOwners)
	l.start()
	l.run(rebootSteps, 1, l.step, func(*rand.Rand) {
		l.kill()
		count.killed(1)
		held, before := l.holders(), len(l.server.Calls(t))
		live := l.liveIDs(held)
		l.node.Reboot(t)
		l.start()
		l.askAll(held)
		for _, call := range l.server.Calls(t)[before:] {
			changes := call.Verb == "ADD" || call.Verb == "DEL"
			if id := call.Env["CNI_CONTAINERID"]; changes && slices.Contains(live, id) {
				t.Errorf("after the reboot %s of %s was called, which the server holds", call.Verb, id)
			}
		}
		l.resume()
	})
	l.finish()
}

// liveIDs are the container IDs under which the server has what owners hold.
func (l *lateBatch) liveIDs(held []*batchOwner) []string {
	l.t.Helper()
	leases, err := l.server.Leases(l.server.Network.Name)
	must(l.t, err)
	var ids []string
	for _, lease := range leases {
		if slices.ContainsFunc(held, func(o *batchOwner) bool { return slices.Contains(l.history.Has(o.name), lease.IP) }) {
			ids = append(ids, lease.ContainerID)
		}
	}
	return ids
}

// rebootOverHostLocal reboots a node whose plugin's files may have lost their last
// writes, or everything.
func rebootOverHostLocal(t *testing.T, count *tally, number uint64) {
	t.Helper()
	n := nodeWith(t)
	r := &powerLoss{batch: newBatch(t, n, number, rebootOwners, "--verify-interval=1h")}
	n.Store = func() ([]oracle.Lease, error) {
		leases, _, err := oracle.HostLocalKilled(n.StoreDir)
		return slices.DeleteFunc(leases, func(l oracle.Lease) bool { return l.ContainerID == aPod }), err
	}
	r.start()
	r.run(rebootSteps, 1, r.ask, func(dice *rand.Rand) {
		r.kill()
		count.killed(1)
		r.strike(dice)
		held := r.holders()
		before := r.leaseFiles(held)
		n.Reboot(t)
		r.start()
		r.askAll(held)
		for file, was := range before {
			now, err := os.Stat(file)
			if err != nil || !os.SameFile(was, now) || !now.ModTime().Equal(was.ModTime()) {
				t.Errorf("the lease file %s survived the reboot and was then removed: %v", file, err)
			}
		}
		r.resume()
	})
	r.end(r.barred...)
	count.leftEmpty(r.empty)
	for _, ip := range r.taken {
		if data, err := os.ReadFile(r.lease(ip)); err != nil || string(data) != aPod+"\r\neth0" {
			t.Errorf("%s was a pod's and is now %q: %v", ip, data, err)
		}
	}
}

// aPod is the container ID of the pods that have taken what the plugin forgot.
const aPod = "a-pods-sandbox"

// powerLoss is a batch whose store has lost writes.
type powerLoss struct {
	*batch
	// taken are addresses that pods have now, and barred those that the owners cannot
	// get back: the taken ones, and those whose files are empty.
	taken, barred []netip.Addr
	empty         int
}

func (r *powerLoss) lease(ip netip.Addr) string {
	return filepath.Join(r.node.StoreDir, "pods", ip.String())
}

// strike takes leases from the plugin's store: none, some of the last ones, or all. Of
// those, a few are left without their content, and a few are given to pods before the
// sidecar starts.
func (r *powerLoss) strike(dice *rand.Rand) {
	r.t.Helper()
	lost := []int{0, 50, 100}[dice.IntN(3)]
	leases, err := r.node.Store()
	must(r.t, err)
	for _, l := range leases {
		file := r.lease(l.IP)
		if dice.IntN(100) >= lost {
			continue
		}
		switch dice.IntN(12) {
		case 0:
			must(r.t, os.Truncate(file, 0))
			r.barred = append(r.barred, l.IP)
			r.empty++
		case 1:
			must(r.t, os.WriteFile(file, []byte(aPod+"\r\neth0"), 0o600))
			r.barred, r.taken = append(r.barred, l.IP), append(r.taken, l.IP)
		default:
			// A plugin that has outlived the sidecar may have released it.
			if err := os.Remove(file); !errors.Is(err, fs.ErrNotExist) {
				must(r.t, err)
			}
		}
	}
}

// leaseFiles are those of owners.
func (r *powerLoss) leaseFiles(held []*batchOwner) map[string]os.FileInfo {
	r.t.Helper()
	files := map[string]os.FileInfo{}
	for _, o := range held {
		for _, ip := range r.history.Has(o.name) {
			info, err := os.Stat(r.lease(ip))
			must(r.t, err)
			files[r.lease(ip)] = info
		}
	}
	return files
}

// holders are the owners whose whole attachment the plugin has for certain: each
// address of its record, and no request was cut off. No sidecar runs meanwhile.
func (b *batch) holders() []*batchOwner {
	b.t.Helper()
	stored, err := b.node.Store()
	must(b.t, err)
	kept, err := oracle.Journal(b.node.StateDir)
	must(b.t, err)
	return slices.DeleteFunc(slices.Clone(b.owners), func(o *batchOwner) bool {
		i := slices.IndexFunc(kept, func(k oracle.Kept) bool { return k.Owner == o.name && k.State == "held" })
		if i < 0 || o.cut || len(b.history.Has(o.name)) == 0 {
			return true
		}
		return slices.ContainsFunc(kept[i].IPs, func(ip netip.Addr) bool {
			return !slices.ContainsFunc(stored, func(l oracle.Lease) bool { return l.IP == ip && l.ContainerID == kept[i].ContainerID })
		})
	})
}

// askAll lets holders ask at the same time for what they have, and wants that answered.
func (b *batch) askAll(held []*batchOwner) {
	b.t.Helper()
	var all sync.WaitGroup
	for _, o := range held {
		all.Go(func() {
			has := b.history.Has(o.name)
			r := allocation(o.name, "")
			a, _ := b.sendNow(o, r)
			got := r.addresses(a)
			lacks := func(ip netip.Addr) bool { return !slices.Contains(got, ip) }
			if slices.ContainsFunc(has, lacks) {
				b.t.Errorf("%s had %v, which the plugin kept, and was answered %s", o.name, has, a)
			}
		})
	}
	all.Wait()
}
