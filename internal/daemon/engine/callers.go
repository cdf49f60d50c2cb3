package engine

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
)

// Callers share the plugin processes of a pool, the request queue and the attachments, and none of them
// may stop the others (docs/design/how-it-works.md, Waiting): a class of callers has slots that those
// after it cannot occupy, and users of one class take turns.

// User is the user whose process sent a request. The zero value is root.
type User struct {
	ID int
	// Ordinary: neither root nor the daemon's own user.
	Ordinary bool
}

// recorded returns the user as in a record: the ID of an ordinary user, 0 for another one.
func (u User) recorded() int {
	if u.Ordinary {
		return u.ID
	}
	return 0
}

// class is the class of a request.
type class int

const (
	// ofRuntime: of a container runtime, for a container interface.
	ofRuntime class = iota
	// ofAgent: of root, or for an owner of cilium-agent.
	ofAgent
	ofOthers
)

// ofAPI reports whether an owner is one of the API: neither a container interface nor a lease that is acquired for one.
func ofAPI(owner string) bool { return !attachment.OfContainer(owner) && !attachment.IsWarm(owner) }

// bridgeOwnerPrefix is planner.OwnerPrefix of delegated-ipam-bridge, an ordinary user that requests the
// addresses of the agent as these owners.
const bridgeOwnerPrefix = "ciliumnode-"

func (u User) class(owner string) class {
	switch {
	case attachment.OfContainer(owner):
		return ofRuntime
	case !u.Ordinary || strings.HasPrefix(owner, bridgeOwnerPrefix):
		return ofAgent
	}
	switch owner {
	case "router", "health", "ingress": // Cilium, daemon/cmd/ipam.go and pkg/ipam
		return ofAgent
	}
	return ofOthers
}

// shares returns how many of n slots each class may have, at least one.
func shares(n int) [ofOthers + 1]int64 {
	reserved := max(1, n/4)
	return [...]int64{ofRuntime: int64(n), ofAgent: int64(max(1, n-reserved)), ofOthers: int64(max(1, n-2*reserved))}
}

// slots are semaphores of which a request needs a slot each, in the order in which all acquire them.
type slots []*semaphore.Weighted

// newSlots returns the slots of each class: one of ofOthers is also one of ofAgent, and that is one of
// ofRuntime.
func newSlots(n int) (all [ofOthers + 1]slots) {
	var outer slots
	for c, share := range shares(n) {
		outer = append(slots{semaphore.NewWeighted(share)}, outer...)
		all[c] = outer
	}
	return all
}

func (s slots) acquire(ctx context.Context) error {
	for i, each := range s {
		if err := each.Acquire(ctx, 1); err != nil {
			s[:i].release()
			return err
		}
	}
	return nil
}

func (s slots) tryAcquire() bool {
	for i, each := range s {
		if !each.TryAcquire(1) {
			s[:i].release()
			return false
		}
	}
	return true
}

func (s slots) release() {
	for _, each := range s {
		each.Release(1)
	}
}

// caller is the requests in progress of a user, or of all container runtimes, in a pool.
type caller struct {
	callerKey
	// turns limits the plugin processes that its requests use or wait for: the others wait for their turn,
	// and have no place before those of other callers.
	turns *semaphore.Weighted
	// queued limits its requests that wait or use the plugin to maxQueued.
	queued    *semaphore.Weighted
	maxQueued int64
	refs      int
}

type callerKey struct {
	pool      string
	ofRuntime bool
	User
}

func (k callerKey) String() string {
	if k.ofRuntime {
		return "container runtimes"
	}
	return fmt.Sprintf("user ID %d", k.ID)
}

// callers are the callers with requests in progress.
type callers struct {
	mu    sync.Mutex
	known map[callerKey]*caller
	// processes and queued are the shares of Options.MaxProcesses and Options.MaxQueued.
	processes, queued [ofOthers + 1]int64
	// perUser limits the queued requests of an ordinary user.
	perUser int64
	queue   [ofOthers + 1]slots
}

func newCallers(o Options) *callers {
	return &callers{
		known: map[callerKey]*caller{}, processes: shares(o.MaxProcesses), queued: shares(o.MaxQueued),
		perUser: int64(max(1, o.MaxQueued/4)), queue: newSlots(o.MaxQueued),
	}
}

// get returns the caller of a request until put.
func (c *callers) get(k attachment.Key, u User) *caller {
	key, limits, queued := callerKey{pool: k.Pool, User: u}, ofAgent, c.queued[ofAgent]
	switch {
	case attachment.OfContainer(k.Owner):
		key, limits, queued = callerKey{pool: k.Pool, ofRuntime: true}, ofRuntime, c.queued[ofRuntime]
	case u.Ordinary:
		limits, queued = ofOthers, c.perUser
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	got := c.known[key]
	if got == nil {
		got = &caller{callerKey: key, turns: semaphore.NewWeighted(c.processes[limits]), queued: semaphore.NewWeighted(queued), maxQueued: queued}
		c.known[key] = got
	}
	got.refs++
	return got
}

func (c *callers) put(used *caller) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if used.refs--; used.refs == 0 {
		delete(c.known, used.callerKey)
	}
}

// owned counts the entries that are not of container interfaces, those of ordinary users, and those of each
// of these. It is guarded by entries.mu.
type owned struct {
	limit           int
	total, ordinary int
	users           map[int]int
}

// check returns an error if a user may not create a further entry.
func (o *owned) check(k attachment.Key, u User) error {
	const remedy = "(--max-attachments); release others that are not used"
	ordinary, each := o.limit*3/4, max(1, o.limit/2)
	switch {
	case !ofAPI(k.Owner):
		return nil
	case o.total >= o.limit:
		return attachment.NewError(attachment.Forbidden, "%s: there are %d attachments, which is the limit %s", k, o.total, remedy)
	case u.Ordinary && o.users[u.ID] >= each:
		return attachment.NewError(attachment.Forbidden, "%s: user ID %d has %d attachments, which is the limit for one user %s", k, u.ID, each, remedy)
	case u.Ordinary && o.ordinary >= max(1, ordinary):
		return attachment.NewError(attachment.Forbidden, "%s: users other than root have %d attachments, which is their limit %s", k, o.ordinary, remedy)
	}
	return nil
}

// add adds to the numbers the entry of an attachment.
func (o *owned) add(n int, a *entry) {
	if !ofAPI(a.Owner) {
		return
	}
	o.total += n
	if !a.user.Ordinary {
		return
	}
	o.ordinary += n
	if o.users[a.user.ID] += n; o.users[a.user.ID] == 0 {
		delete(o.users, a.user.ID)
	}
}
