package faults

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// rebootOwners is the number of cases on a node, and rebootSteps the number of steps of each.
const rebootOwners, rebootSteps = 30, 4

//evidence:design/reliability the lease of one family survived, that of the other did not
func TestRandomReboots(t *testing.T) {
	eachBatch(t, rebootsAtRandom, sized(t, 2, 200), rebootOwners, func(t *testing.T, st *stats, number uint64) {
		if number%3 == 1 {
			rebootWithServer(t, st, number)
		} else {
			rebootWithHostLocal(t, st, number)
		}
	})
}

// rebootWithServer reboots a node whose plugin has its store on a server.
func rebootWithServer(t *testing.T, st *stats, number uint64) {
	l := newLateBatch(t, number, rebootOwners)
	l.start()
	l.run(rebootSteps, 1, l.step, func(*rand.Rand) {
		l.kill()
		st.kills.Add(1)
		held, before := l.holders(), len(l.server.Calls(t))
		live := l.liveIDs(held)
		l.node.Reboot(t)
		l.start()
		l.allocateHeld(held)
		for _, call := range l.server.Calls(t)[before:] {
			changes := call.Verb == "ADD" || call.Verb == "DEL"
			if id := call.Env["CNI_CONTAINERID"]; changes && slices.Contains(live, id) {
				t.Errorf("after the reboot %s of %s was called, which the server holds", call.Verb, id)
			}
		}
		l.requestLock.Unlock()
	})
	l.finishLate()
}

// liveIDs returns the container IDs of the owners' leases on the server.
func (l *lateBatch) liveIDs(held []*batchOwner) []string {
	leases, err := l.server.Leases(l.server.Network.Name)
	check.Must(l.t, err)
	var ids []string
	for _, lease := range leases {
		if slices.ContainsFunc(held, func(o *batchOwner) bool { return slices.Contains(l.history.Addresses(o.name), lease.IP) }) {
			ids = append(ids, lease.ContainerID)
		}
	}
	return ids
}

// rebootWithHostLocal reboots a node whose plugin may have lost its last writes, or all of them.
func rebootWithHostLocal(t *testing.T, st *stats, number uint64) {
	n := nodeWith(t)
	r := &powerLoss{batch: newBatch(t, n, number, rebootOwners, "--verify-interval=1h")}
	n.Store = func() ([]oracle.Lease, error) {
		leases, _, err := oracle.HostLocalAfterKill(n.StoreDir)
		return slices.DeleteFunc(leases, func(l oracle.Lease) bool { return l.ContainerID == podContainerID }), err
	}
	r.start()
	r.run(rebootSteps, 1, r.sendRandom, func(dice *rand.Rand) {
		r.kill()
		st.kills.Add(1)
		r.loseLeases(dice)
		held := r.holders()
		before := r.leaseFiles(held)
		n.Reboot(t)
		r.start()
		r.allocateHeld(held)
		for file, was := range before {
			now, err := os.Stat(file)
			if err != nil || !os.SameFile(was, now) || !now.ModTime().Equal(was.ModTime()) {
				t.Errorf("the lease file %s survived the reboot and was then removed: %v", file, err)
			}
		}
		r.requestLock.Unlock()
	})
	r.finish(r.unavailable...)
	st.empty.Add(int64(r.empty))
	for _, ip := range r.taken {
		if data, err := os.ReadFile(r.lease(ip)); err != nil || string(data) != podContainerID+"\r\neth0" {
			t.Errorf("%s was leased to a pod and is now %q: %v", ip, data, err)
		}
	}
}

// podContainerID is the container ID of pods that got addresses whose leases were lost.
const podContainerID = "pod-sandbox"

// powerLoss is a batch whose store has lost writes.
type powerLoss struct {
	*batch
	// taken has the addresses of pods, and unavailable those that the owners cannot reacquire:
	// the taken ones, and those with an empty file.
	taken, unavailable []netip.Addr
	empty              int
}

func (r *powerLoss) lease(ip netip.Addr) string {
	return filepath.Join(r.node.StoreDir, "pods", ip.String())
}

// loseLeases deletes none, some or all leases from the plugin's store. Of those, it replaces a few
// by empty files and a few by leases of pods.
func (r *powerLoss) loseLeases(dice *rand.Rand) {
	lost := []int{0, 50, 100}[dice.IntN(3)]
	for _, l := range r.node.Leases(r.t) {
		file := r.lease(l.IP)
		if dice.IntN(100) >= lost {
			continue
		}
		switch dice.IntN(12) {
		case 0:
			check.Must(r.t, os.Truncate(file, 0))
			r.unavailable = append(r.unavailable, l.IP)
			r.empty++
		case 1:
			check.Must(r.t, os.WriteFile(file, []byte(podContainerID+"\r\neth0"), 0o600))
			r.unavailable, r.taken = append(r.unavailable, l.IP), append(r.taken, l.IP)
		default:
			// A plugin process that outlived the daemon may have released it.
			if err := os.Remove(file); !errors.Is(err, fs.ErrNotExist) {
				check.Must(r.t, err)
			}
		}
	}
}

// leaseFiles returns the lease files of owners.
func (r *powerLoss) leaseFiles(held []*batchOwner) map[string]os.FileInfo {
	files := map[string]os.FileInfo{}
	for _, o := range held {
		for _, ip := range r.history.Addresses(o.name) {
			info, err := os.Stat(r.lease(ip))
			check.Must(r.t, err)
			files[r.lease(ip)] = info
		}
	}
	return files
}

// holders returns the owners that certainly have every lease of their record: no request of
// theirs was interrupted. It must be called while no daemon runs.
func (b *batch) holders() []*batchOwner {
	answered := b.answered()
	stored := b.node.Leases(b.t)
	kept, err := oracle.Journal(b.node.StateDir)
	check.Must(b.t, err)
	return slices.DeleteFunc(answered, func(o *batchOwner) bool {
		i := slices.IndexFunc(kept, func(k oracle.Attachment) bool { return k.Owner == o.name && k.State == "held" })
		if i < 0 {
			return true
		}
		return slices.ContainsFunc(kept[i].IPs, func(ip netip.Addr) bool {
			return !slices.ContainsFunc(stored, func(l oracle.Lease) bool { return l.IP == ip && l.ContainerID == kept[i].ContainerID })
		})
	})
}

// answered returns the owners whose last requests were answered with addresses.
func (b *batch) answered() []*batchOwner {
	return slices.DeleteFunc(slices.Clone(b.owners), func(o *batchOwner) bool {
		return o.interrupted || len(b.history.Addresses(o.name)) == 0
	})
}

// allocateHeld allocates for the holders concurrently, and wants the addresses that they hold.
func (b *batch) allocateHeld(held []*batchOwner) {
	var all sync.WaitGroup
	for _, o := range held {
		all.Go(func() {
			has := b.history.Addresses(o.name)
			a, got := b.allocateNow(o)
			lacks := func(ip netip.Addr) bool { return !slices.Contains(got, ip) }
			if slices.ContainsFunc(has, lacks) {
				b.t.Errorf("%s had %v, which the plugin kept, and got %s", o.name, has, a)
			}
		})
	}
	all.Wait()
}
