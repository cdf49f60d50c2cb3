// Package attachment is the engine: it keeps what each owner holds, by the
// protocol that docs/how-it-works.md tells and protocol.go spells out. It knows
// neither HTTP nor processes nor files: it sees a Journal and a Plugin.
package attachment

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sync/semaphore"

	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

// DefaultPool is the pool of a request that names none.
const DefaultPool = "default"

// Options say how the engine works. Durations of zero switch off what they
// time, except Budget.
type Options struct {
	// Node is the node's name, a part of each new container ID.
	Node string
	// BootID and MachineID are those of this boot and this machine.
	BootID, MachineID string
	// Pools are the names of the configured pools.
	Pools []string
	// EnableIPv4 and EnableIPv6 switch the families on.
	EnableIPv4, EnableIPv6 bool
	// Owners admits owners; RetireOwners releases at start what it does not admit.
	Owners       Owners
	RetireOwners bool
	// VerifyInterval is how long the plugin's last confirmation is believed.
	VerifyInterval time.Duration
	// ReleaseDelay is how long a released attachment cools before its DEL.
	ReleaseDelay time.Duration
	// Expiration is the time in which an expiring hand-out must be confirmed.
	Expiration time.Duration
	// Budget is the longest time a request waits for its answer.
	Budget time.Duration
	// MaxProcesses is how many plugin processes may run at once, at least 1.
	MaxProcesses int
	// MaxQueued is how many requests may wait for their turn or for the plugin at
	// once; further ones are Busy.
	MaxQueued int
	Log       logrus.FieldLogger
	// Observer is told what happens; nil for none.
	Observer Observer
}

// Engine keeps the attachments of one node.
type Engine struct {
	Options
	journal Journal
	plugin  Plugin

	slots    *semaphore.Weighted // one per plugin process
	requests *semaphore.Weighted // one per request that waits, or has the plugin asked
	errands  *errands
	// turns and processes count who waits for the turn at an attachment and for slots.
	turns, processes queue
	// life ends at Stop: background work that has not begun is dropped then.
	life context.Context
	end  context.CancelFunc

	mu       sync.Mutex
	stopping bool
	running  sync.WaitGroup
	byOwner  map[key]*entry
	byID     map[string]*entry
	index    index
	refused  map[key]error
	counters Counters
	failure  Failure
}

// key names an attachment: a record is looked up by owner and pool, whatever
// the node or the network is called today (docs/how-it-works.md, Identity).
type key struct{ pool, owner string }

// entry is one attachment in memory. Whoever holds its turn may change it;
// changes are made under Engine.mu, so that All may read them.
type entry struct {
	key
	// turn holds one token: one operation at a time per attachment.
	turn  chan struct{}
	users int
	id    string // container ID of generation 0; empty until it is needed

	rec *record.Record // nil: nothing is recorded
	// unsure: the last write failed, so the disk may hold the old or the new
	// record; nothing is answered from memory before a write has succeeded.
	unsure   bool
	verified time.Time
	lastUsed time.Time
	lost     bool
	lastErr  string

	// retire: it is to be released, by --retire-owners or because its client got no
	// response and the journal could not be written.
	retire bool
	// checked: the recovery after the start has dealt with it.
	checked bool
	// doubted: an older attachment had the same address at the start.
	doubted bool
	// idle: it is lost, every DEL has succeeded, and it waits for its owner.
	idle bool
	// failures in a row, and when the work that failed is tried again.
	failures int
	retryAt  time.Time
	timer    *time.Timer
}

// New returns an engine without attachments. Call Start before anything else.
func New(o Options, j Journal, p Plugin) *Engine {
	if o.Observer == nil {
		o.Observer = nopObserver{}
	}
	life, end := context.WithCancel(context.Background())
	return &Engine{
		Options: o, journal: j, plugin: p,
		slots:    semaphore.NewWeighted(int64(o.MaxProcesses)),
		requests: semaphore.NewWeighted(int64(o.MaxQueued)),
		errands:  newErrands(),
		life:     life, end: end,
		byOwner: map[key]*entry{}, byID: map[string]*entry{}, index: index{}, refused: map[key]error{},
	}
}

// Stop refuses new requests, drops background work that has not begun, and
// waits until what has begun is recorded, or until ctx ends. Nothing is released.
func (e *Engine) Stop(ctx context.Context) error {
	e.mu.Lock()
	e.stopping = true
	for _, a := range e.byOwner {
		if a.timer != nil {
			a.timer.Stop()
		}
	}
	e.mu.Unlock()
	e.end()
	e.errands.close()
	done := make(chan struct{})
	go func() { e.running.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// enabled tells whether a family is on.
func (e *Engine) enabled(f record.Family) bool {
	return f == record.IPv4 && e.EnableIPv4 || f == record.IPv6 && e.EnableIPv6
}

// holder returns whose address it is in a pool, and under which container ID.
func (e *Engine) holder(pool string, ip netip.Addr) (k key, containerID string, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	a := e.index.holder(pool, ip)
	if a == nil {
		return key{}, "", false
	}
	return a.key, a.id, true
}

// knownPool refuses a pool that is neither configured nor, with held set, the
// pool of an attachment: what an earlier configuration left can be given back.
func (e *Engine) knownPool(pool string, held bool) error {
	if slices.Contains(e.Pools, pool) {
		return nil
	}
	known := slices.Clone(e.Pools)
	if held {
		e.mu.Lock()
		defer e.mu.Unlock()
		for k := range e.byOwner {
			if k.pool == pool {
				return nil
			}
		}
	}
	slices.Sort(known)
	return fail(UnknownPool, "pool %q is not known; expected one of: %s", pool, strings.Join(known, ", "))
}
