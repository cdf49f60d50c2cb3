package engine

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/delegated-ipam/delegated-ipam/internal/containerid"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/attachment"
)

// An operation is the attachment.World of its attachment.
var _ attachment.World = (*operation)(nil)

func (op *operation) Now() time.Time { return time.Now() }

func (op *operation) NewUUID() string { return uuid.NewString() }

func (op *operation) UniqueID(id string) string { return containerid.Unique(id) }

func (op *operation) Stopping() bool { return op.engine.ctx.Err() != nil }

// Publish replaces the state that readers see, and its addresses in the index.
func (op *operation) Publish(s attachment.Status) {
	e, a := op.engine, op.entry
	e.mu.Lock()
	defer e.mu.Unlock()
	if a.Rec != s.Rec {
		if a.Rec != nil {
			e.index.remove(a, a.Rec.Reserved())
		}
		if s.Rec != nil {
			e.index.add(a, s.Rec.Network, s.Rec.Reserved())
			e.records.Store(a.Key, s.Rec)
		} else {
			e.records.Delete(a.Key)
		}
	}
	a.Status = s
}

// Note logs and counts.
func (op *operation) Note(n attachment.Note) {
	log := op.outcomeLogger(op.protocol.Rec.Addrs())
	if n.Err != nil {
		log = log.WithError(n.Err)
	}
	switch n.Kind {
	case attachment.NoteLost:
		op.engine.count(func(c *Counters) { c.Lost++ })
		log.Error(n.Kind)
	case attachment.NoteReacquired:
		op.engine.count(func(c *Counters) { c.Reacquired++ })
		log.Info(n.Kind)
	case attachment.NoteDuplicate:
		op.engine.count(func(c *Counters) { c.Duplicates++ })
		log.Error(n.Kind)
	case attachment.NoteExpired:
		op.engine.count(func(c *Counters) { c.Expired++ })
	case attachment.NoteDelFailed:
		log.Warn(n.Kind)
	case attachment.NoteNoLookup:
		log.Debug(n.Kind)
	default:
		log.Info(n.Kind)
	}
}

func (op *operation) Network() (call.Network, error) { return op.engine.plugin.Network(op.entry.Pool) }

func (op *operation) Configured() error { return op.engine.plugin.Configured(op.entry.Pool) }

func (op *operation) Outside(ip netip.Addr) bool {
	return op.engine.plugin.Range(op.entry.Pool, []netip.Addr{ip}) == call.RangeOutside
}

func (op *operation) NewInvocation(n call.Network, id string) (call.Invocation, error) {
	if attachment.OfContainer(op.entry.Owner) {
		c := op.container
		if c == nil { // in the background
			recorded := call.ContainerOf(op.protocol.LastInvocation())
			c = &recorded
		}
		inv, err := op.engine.plugin.ContainerInvocation(op.callCtx(), n, *c)
		// Before a record is written, as for other owners. A DEL or CHECK is the plugin's to refuse.
		if adds := op.protocol.Action == attachment.Allocate || op.protocol.Action == attachment.Reacquire; err == nil && adds {
			err = op.engine.plugin.CheckConfig(op.callCtx(), n, inv)
		}
		return inv, err
	}
	return op.engine.plugin.NewInvocation(op.callCtx(), n, id, op.entry.Owner)
}

func (op *operation) WithContainer(inv call.Invocation) (call.Invocation, error) {
	return op.engine.plugin.WithContainer(inv, *op.container)
}

func (op *operation) Call(verb string, inv call.Invocation) (call.Result, error) {
	c := call.Call{Invocation: inv, Owner: op.entry.Owner, Pool: op.entry.Pool}
	switch verb {
	case call.VerbAdd:
		return op.engine.plugin.Add(op.callCtx(), c)
	case call.VerbDel:
		return call.Result{}, op.engine.plugin.Del(op.callCtx(), c)
	default:
		return call.Result{}, op.engine.plugin.Check(op.callCtx(), c)
	}
}

func (op *operation) Holds(inv call.Invocation, addrs []netip.Addr) (bool, error) {
	return op.engine.plugin.Holds(inv, addrs)
}

func (op *operation) Lookup(inv call.Invocation) (call.Result, error) {
	return op.engine.plugin.Lookup(op.callCtx(), inv)
}

// AssignID rejects a container ID that another attachment has (docs/design/how-it-works.md, Identity).
func (op *operation) AssignID(id string) error {
	e, a := op.engine, op.entry
	e.mu.Lock()
	defer e.mu.Unlock()
	if other, ok := e.byID[id]; ok && other != a {
		return newError(attachment.Failed, "%s: its container ID %s belongs to %s already; release it there first", a, id, other)
	}
	if a.ID != id {
		delete(e.byID, a.ID)
	}
	e.byID[id] = a
	return nil
}

func (op *operation) Holder(ip netip.Addr) (attachment.Other, bool) {
	op.engine.mu.Lock()
	defer op.engine.mu.Unlock()
	a := op.engine.index.holder(op.entry.Pool, ip)
	if a == nil || a == op.entry {
		return attachment.Other{}, false
	}
	return a.other(), true
}

func (op *operation) Older() bool {
	op.engine.mu.Lock()
	defer op.engine.mu.Unlock()
	r := op.entry.Rec
	other, _ := op.engine.index.conflict(op.entry, r.Network, r.Reserved())
	return other != nil && other.olderThan(op.entry)
}

func (op *operation) Reserve(network string, ips []netip.Addr) (attachment.Other, netip.Addr) {
	op.engine.mu.Lock()
	defer op.engine.mu.Unlock()
	other, taken := op.engine.index.conflict(op.entry, network, ips)
	if other != nil {
		return other.other(), taken
	}
	op.engine.index.add(op.entry, network, ips)
	return attachment.Other{}, netip.Addr{}
}

func (op *operation) Unreserve(ips []netip.Addr) {
	op.engine.mu.Lock()
	defer op.engine.mu.Unlock()
	op.engine.index.remove(op.entry, ips)
	if r := op.entry.Rec; r != nil {
		op.engine.index.add(op.entry, r.Network, r.Reserved())
	}
}

func (op *operation) Doubted() bool { return op.entry.verifyDue.Load() }

func (op *operation) SetDoubted(due bool) { op.entry.verifyDue.Store(due) }

func (op *operation) Doubt(o attachment.Other) {
	op.engine.mu.Lock()
	defer op.engine.mu.Unlock()
	if other := op.engine.byOwner[o.Key]; other != nil {
		other.verifyDue.Store(true)
		if other.Failures == 0 { // otherwise its retry verifies it
			op.doubted = append(op.doubted, other)
		}
	}
}

// Process waits for a plugin process, once per operation. An operation without a client ends here.
func (op *operation) Process() error { return op.acquireProcess() }

func (op *operation) TryProcess() (bool, error) { return op.tryProcess() }

// Freed reconciles a lost attachment whose addresses the plugin has just returned to op, which released
// them. Now the plugin may allocate them to their owner, even if they cannot be requested.
func (op *operation) Freed(o attachment.Other) {
	other := op.lockOther(o.Key, 0)
	if other == nil {
		return
	}
	defer other.unlock()
	other.protocol.Freed = other.protocol.Lost // it may have been reacquired meanwhile
	other.reconcileAndRecord()
	other.schedule()
}

// Kept returns the attachment whose container was the last one of the pod.
func (op *operation) Kept(inv call.Invocation) (k attachment.Key, had []call.Address) {
	var since time.Time
	op.engine.each(func(a *entry) {
		if a.Pool == op.entry.Pool && attachment.KeptFor(a.Rec, inv) && a.Rec.Changed.After(since) {
			k, had, since = a.Key, slices.Clone(a.Rec.Result.Addresses), a.Rec.Changed
		}
	})
	return k, had
}

// cooldownWait is how long EndCooldown waits for another operation, such as that of a start, which verifies it.
const cooldownWait = 2 * time.Second

// EndCooldown releases another attachment that is in cooldown.
func (op *operation) EndCooldown(k attachment.Key) {
	_, _ = op.endCooldown(k, cooldownWait)
}

// endCooldown releases another attachment that is in cooldown, unless it is locked for longer than a time.
func (op *operation) endCooldown(k attachment.Key, wait time.Duration) (locked bool, err error) {
	other := op.lockOther(k, wait)
	if other == nil {
		return true, nil
	}
	defer other.unlock()
	other.protocol.Action, other.requestID = attachment.Cleanup, op.requestID
	ips := other.protocol.Rec.Addrs()
	err = other.protocol.EndCooldown()
	other.recordResult(err)
	other.logOutcome(ips, err, "Ended the cooldown for "+op.String(), "Failed to end the cooldown for "+op.String())
	other.schedule()
	return false, err
}

// EndOldestCooldown ends the oldest cooldown of the pool. One that is locked is being ended or requested.
func (op *operation) EndOldestCooldown(having []netip.Addr) bool {
	since := map[attachment.Key]time.Time{}
	op.engine.each(func(a *entry) {
		has := func(ip netip.Addr) bool { return slices.Contains(having, ip) }
		if a.Pool == op.entry.Pool && a != op.entry && a.Rec.State == attachment.Cooldown && (len(having) == 0 || slices.ContainsFunc(a.Rec.Addrs(), has)) {
			since[a.Key] = a.Rec.Changed
		}
	})
	oldest := func(a, b attachment.Key) int { return cmp.Or(since[a].Compare(since[b]), a.Compare(b)) }
	for _, k := range slices.SortedFunc(maps.Keys(since), oldest) {
		if locked, err := op.endCooldown(k, 0); !locked {
			return err == nil
		}
	}
	return false
}

func (a *entry) other() attachment.Other {
	return attachment.Other{Key: a.Key, ID: a.IDInUse(), Lost: a.Lost, Addresses: a.Rec.Addrs()}
}

func newError(k attachment.Kind, format string, args ...any) *attachment.Error {
	return &attachment.Error{Kind: k, Err: fmt.Errorf(format, args...)}
}

// families are the families of an operation that no client requested.
func (op *operation) families() []attachment.Family {
	var families []attachment.Family
	for _, ip := range op.protocol.Rec.Addrs() {
		if f := attachment.FamilyOf(ip); !slices.Contains(families, f) {
			families = append(families, f)
		}
	}
	if len(families) == 0 {
		return op.engine.requestedFamilies("")
	}
	return families
}
