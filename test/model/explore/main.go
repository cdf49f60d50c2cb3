// Command explore tries every order of steps, outcomes and faults of the protocol (package attachment), as
// the engine runs it, breadth first. violation and unfinished have the properties. Assumed is:
//
//   - A journal is lost only while nothing is in flight. An owner whose lease cannot be looked up then uses only the
//     address of the response. Leases may stay until their owner's next request; those of later generations or random
//     IDs stay forever.
//   - An outage in which CHECK reports a loss wrongly does not end before the DEL that confirms it.
//   - A lookup does not fail for an owner without a record whose lease is in the store.
//   - The profile's seconds are right, and the clock is not set ahead.
//   - No pod gets the address of a lost lease before the owner's next verification.
//   - A container that has lost one of its addresses is not added again.
//   - The plugin itself adds a container ID again only where the last ADD or DEL of that ID had a result.
//   - Where the plugin's key is the pod, the process of an earlier run ends before a DEL of another container.
//   - After a reboot the node's pods and owners repeat their requests before they use an address.
//
// Not explored are expiration, a second pool, a second daemon and operator commands.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// reached is how a world was reached: by a move from another one.
type reached struct {
	parent int32
	move   int16
}

// successor is a world that a move leads to.
type successor struct {
	key  key
	w    *world
	how  reached
	kind moveKind
	rest rest
	bad  string
}

// rest is what of a world matters to progress.
type rest byte

const (
	works      rest = iota // something is in progress
	unfinished             // nothing is, but something should be
	finished
)

func (x *explorer) restOf(w *world) rest {
	switch {
	case w.outage || len(w.late) > 0 || slices.ContainsFunc(w.owners, func(o owner) bool { return o.run != nil || o.waits }):
		return works
	case x.unfinished(w) != "":
		return unfinished
	}
	return finished
}

// searchResult is the result of a search.
type searchResult struct {
	states, depth int
	trace         []string
	bad           string
	// seen are the changes of durable states that follow without faults.
	seen map[transition]bool
}

// chunk is how many worlds are expanded at one time.
const chunk = 2048

// graph is all that is known of the worlds that were found.
type graph struct {
	index map[key]int32
	hows  []reached
	rests []rest
	// next is the world that follows without requests and faults; none is -1.
	next []int32
}

func (g *graph) add(s successor) (n int32, isNew bool) {
	if n, ok := g.index[s.key]; ok {
		return n, false
	}
	n = int32(len(g.hows)) //nolint:gosec // limited by -limit
	g.index[s.key] = n
	g.hows, g.rests, g.next = append(g.hows, s.how), append(g.rests, s.rest), append(g.next, -1)
	return n, true
}

// search searches breadth first, and returns the shortest trace to a violation.
func (x *explorer) search(limit int) (r searchResult) {
	g := &graph{index: map[key]int32{}}
	r.seen = map[transition]bool{}
	w := x.initial()
	g.add(successor{key: x.key(w), how: reached{parent: -1}, rest: finished})
	fail := func(bad string, n int32) searchResult {
		return searchResult{states: len(g.hows), depth: r.depth, bad: bad, trace: x.trace(g.hows, n)}
	}
	type item struct {
		w *world
		n int32
	}
	for level := []item{{w, 0}}; len(level) > 0; r.depth++ {
		var next []item
		for ; len(level) > 0; level = level[min(chunk, len(level)):] {
			part := level[:min(chunk, len(level))]
			found, changes := make([][]successor, len(part)), make([][]transition, len(part))
			var wg sync.WaitGroup
			var at atomic.Int64
			for range runtime.GOMAXPROCS(0) {
				wg.Go(func() {
					for i := int(at.Add(1)) - 1; i < len(part); i = int(at.Add(1)) - 1 {
						for m, move := range x.moves(part[i].w) {
							next := successor{key: x.key(move.w), w: move.w, how: reached{part[i].n, int16(m)}, kind: move.kind}
							if _, known := g.index[next.key]; !known {
								next.rest, next.bad = x.restOf(move.w), x.violation(move.w)
							}
							found[i] = append(found[i], next)
							if move.kind == goesOn {
								changes[i] = append(changes[i], part[i].w.transitionsTo(move.w)...)
							}
						}
						if !slices.ContainsFunc(found[i], func(s successor) bool { return s.kind == goesOn }) && !x.idle(part[i].w) {
							found[i] = append(found[i], successor{bad: "nothing goes on"})
						}
						part[i].w = nil
					}
				})
			}
			wg.Wait()
			for i, all := range found {
				for _, c := range changes[i] {
					r.seen[c] = true
				}
				for _, s := range all {
					if s.w == nil {
						return fail(s.bad, part[i].n)
					}
					n, isNew := g.add(s)
					if s.kind == goesOn && g.next[part[i].n] < 0 {
						g.next[part[i].n] = n
					}
					switch {
					case !isNew:
					case s.bad != "":
						return fail(s.bad, n)
					default:
						next = append(next, item{s.w, n})
					}
				}
			}
			if len(g.hows) > limit {
				return fail("the limit of states is reached", part[0].n)
			}
		}
		level = next
	}
	if bad, n := g.endless(); bad != "" {
		return fail(bad, n)
	}
	r.states = len(g.hows)
	return r
}

// endless returns a world from which, without requests and faults, the same worlds follow again and again, and
// why they may not.
func (g *graph) endless() (bad string, at int32) {
	visit := make([]int32, len(g.hows)) // in which walk; 0 for none
	for start := range g.hows {
		walk := int32(start + 1) //nolint:gosec // limited by -limit
		n := int32(start)        //nolint:gosec // as above
		for ; n >= 0 && visit[n] == 0; n = g.next[n] {
			visit[n] = walk
		}
		if n < 0 || visit[n] != walk {
			continue
		}
		rests := false
		for m := n; ; m = g.next[m] {
			switch g.rests[m] {
			case unfinished:
				return "it goes on for ever, and what was released stays, or leaks", m
			case finished:
				rests = true
			}
			if g.next[m] == n {
				break
			}
		}
		if !rests {
			return "it goes on for ever", n
		}
	}
	return "", 0
}

// trace returns the moves that lead to a world, in words.
func (x *explorer) trace(hows []reached, last int32) (words []string) {
	var path []reached
	for n := last; n > 0; n = hows[n].parent {
		path = append(path, hows[n])
	}
	x.labels = true
	w := x.initial()
	for _, how := range slices.Backward(path) {
		m := x.moves(w)[how.move]
		w = m.w
		words = append(words, m.label)
	}
	return words
}

func main() {
	only := flag.String("only", "", "the configurations to explore: a regular expression")
	exact := flag.Bool("exact", false, "only is a name")
	limit := flag.Int("limit", 20_000_000, "the most states of one configuration")
	calls := flag.Int("calls", 0, "other number of requests")
	faults := flag.Int("faults", -1, "other number of faults")
	diagram := flag.String("diagram", "", "the page whose diagram of states has all transitions that were seen")
	table := flag.String("moments", "", "the Go file whose comment has the table of kills")
	draw := flag.Bool("draw", false, "write the diagram and the table")
	flag.Parse()
	matches := regexp.MustCompile(*only)
	failed, seen := false, map[transition]bool{}
	for _, c := range configs() {
		if *exact && *only != c.name || !matches.MatchString(c.name) {
			continue
		}
		if *calls > 0 {
			c.calls = *calls
		}
		if *faults >= 0 {
			c.faults = *faults
		}
		start := time.Now()
		r := newExplorer(c).search(*limit)
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		fmt.Printf("%-12s %9d states %3d steps %6.1f s %5d MiB %s\n", c.name, r.states, r.depth, time.Since(start).Seconds(), m.Sys>>20, r.bad)
		for _, l := range r.trace {
			fmt.Println("   ", l)
		}
		failed = failed || r.bad != ""
		maps.Copy(seen, r.seen)
	}
	if *diagram != "" && !failed {
		if err := checkDiagram(seen, *diagram, *draw); err != nil {
			fmt.Println(err)
			failed = true
		}
	}
	if *table != "" {
		if err := checkMoments(*table, *draw); err != nil {
			fmt.Println(err)
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
}

func configs() []config {
	node := profile.Profile{
		Type: "p", RepeatedAdd: profile.RepeatedAddRefused, VerifyBy: profile.VerifyCheck, CheckProves: profile.ProvesPresence,
		Lost: profile.Lost{Codes: []uint{100}, Message: lostMessage}, Del: profile.DelReleased, Store: profile.StoreNode, Unique: true,
		Requests: []profile.Request{profile.RequestArgsCNI}, RequestForm: "address",
	}
	with := func(p profile.Profile, change func(*profile.Profile)) profile.Profile { change(&p); return p }
	local := with(node, func(p *profile.Profile) { p.Lookup = profile.LookupHostLocal })
	repeat := with(node, func(p *profile.Profile) { p.RepeatedAdd = profile.RepeatedAddSameAnswer })
	remote := with(node, func(p *profile.Profile) { p.Store, p.AddOutlivesSeconds = profile.StoreRemote, 2 })
	same := with(remote, func(p *profile.Profile) { p.RepeatedAdd = profile.RepeatedAddSameAnswer })
	verifyAdd := with(same, func(p *profile.Profile) { p.VerifyBy = profile.VerifyAdd })
	another := with(remote, func(p *profile.Profile) {
		p.RepeatedAdd, p.VerifyBy = profile.RepeatedAddAnotherAddress, profile.VerifyNothing
	})
	nothingKnown := with(another, func(p *profile.Profile) { p.Type = profile.Unknown })
	notHeld := with(another, func(p *profile.Profile) { p.DelNotHeld.Message = "not found" })
	byPod := with(same, func(p *profile.Profile) { p.VerifyBy, p.KeyedBy = profile.VerifyNothing, profile.KeyedByPod })
	byContainer := with(byPod, func(p *profile.Profile) { p.KeyedBy = profile.KeyedByContainer })
	queued := with(same, func(p *profile.Profile) { p.Del, p.VerifyBy = profile.DelQueued, profile.VerifyNothing })
	notVerified := func(p profile.Profile) profile.Profile { p.VerifyBy = profile.VerifyNothing; return p }
	ahead := func(p profile.Profile) profile.Profile { p.Depends = profile.DependsOnNothing; return p }
	v4 := []attachment.Family{attachment.IPv4}
	both := []attachment.Family{attachment.IPv4, attachment.IPv6}
	all := []config{
		{name: "local", profile: local, lookup: true, reboot: true, lostJournal: true, olderStore: true},
		{name: "check", profile: node, reboot: true, lostJournal: true, olderStore: true},
		{name: "repeat", profile: repeat, reboot: true, lostJournal: true, olderStore: true},
		{name: "remote", profile: remote, reboot: true, lostJournal: true, outage: true, clockBack: true},
		{name: "same", profile: same, reboot: true, lostJournal: true, outage: true, clockBack: true},
		{name: "another", profile: another, reboot: true, lostJournal: true},
		{name: "verify-add", profile: verifyAdd, reboot: true, outage: true},
		{name: "queued", profile: queued, reboot: true, lostJournal: true},
		{name: "older", profile: node, olderJournal: true, olderStore: true},
		{name: "returns", profile: local, lookup: true, returns: true, calls: 3},
		{name: "families", profile: local, lookup: true, families: both, lostLease: true},
		{name: "restore", profile: local, lookup: true, restore: true, lostJournal: true, olderStore: true},
		{name: "exclude", profile: local, lookup: true, exclude: 1},
		{name: "ranges", profile: local, lookup: true, ranges: true, olderStore: true},
		{name: "ranges-part", profile: local, lookup: true, families: both, ranges: true, lostLease: true, held: true, calls: 1},
		{name: "delay", profile: local, lookup: true, releaseDelay: 3, verifyInterval: 10, olderStore: true},
		{name: "delay-loss", profile: local, lookup: true, releaseDelay: 3, lostLease: true, calls: 3},
		{name: "crash", profile: another},
		{name: "loss", profile: local, lookup: true, lostLease: true},
		{name: "strict-del", profile: nothingKnown, strictDel: true},
		{name: "strict-del-pod", profile: nothingKnown, strictDel: true, addrs: 3, calls: 1}, // a record ends when the range is not full
		{name: "not-held", profile: notHeld, strictDel: true},
		{name: "container-strict-del", profile: nothingKnown, strictDel: true, container: true},
		{name: "container-strict-del-pod", profile: nothingKnown, strictDel: true, container: true, addrs: 3, calls: 1},
		{name: "reservation", profile: with(node, func(p *profile.Profile) { p.VerifyBy = profile.VerifyNothing }), lostLease: true},
		{name: "container", profile: local, lookup: true, container: true, reboot: true, lostJournal: true},
		{name: "container-bare", profile: node, container: true, bare: true},
		{name: "container-remote", profile: remote, container: true, reboot: true, outage: true},
		{name: "container-another", profile: another, container: true, reboot: true},
		{name: "container-loss", profile: local, lookup: true, families: both, container: true, lostAddress: true},
		{name: "container-lost-part-any", profile: nothingKnown, families: both, container: true, held: true, lostAddress: true, addrs: 3},
		{name: "container-lost-part", profile: nothingKnown, families: both, container: true, held: true, lostAddress: true, lowest: true, addrs: 3},
		{name: "container-lost-part-same", profile: notVerified(same), families: both, container: true, held: true, lostAddress: true, lowest: true, addrs: 3, reboot: true, outage: true},
		{name: "container-lost-part-refused", profile: notVerified(remote), families: both, container: true, held: true, lostAddress: true, lowest: true, addrs: 3, olderStore: true, clockBack: true},
		{name: "container-lost-part-strict", profile: nothingKnown, strictDel: true, families: both, container: true, held: true, lostAddress: true, lowest: true, addrs: 3},
		{name: "warm-lost-part", profile: ahead(notVerified(same)), families: both, ahead: true, lostAddress: true, lowest: true, addrs: 4},
		{name: "container-lost", profile: local, lookup: true, container: true, held: true, lostLease: true, calls: 2},
		{name: "container-boot", profile: local, lookup: true, container: true, bootID: true},
		{name: "container-rollback", profile: local, lookup: true, container: true, bare: true},
		{name: "container-back", profile: local, lookup: true, container: true, held: true, lostLease: true, rollback: true, calls: 3},
		{name: "container-gc", profile: local, lookup: true, container: true, gc: true},
		{name: "container-leaves", profile: local, lookup: true, container: true, leaves: true, calls: 2},
		{name: "container-again", profile: local, lookup: true, container: true, again: 1, held: true},
		{name: "container-args", profile: node, container: true, again: 1, byArgs: true, held: true},
		{name: "container-requests", profile: local, lookup: true, container: true, fixed: true, requests: true, held: true, releaseDelay: 3, calls: 2},
		{name: "container-requests-remote", profile: remote, container: true, requests: true, held: true},
		{name: "container-pod", profile: byPod, container: true, byPod: true, held: true},
		{name: "container-interfaces", profile: byContainer, container: true, interfaces: true, reboot: true, outage: true, calls: 3},
		{name: "fixed", profile: local, lookup: true, container: true, fixed: true, releaseDelay: 3, reboot: true},
		{name: "fixed-remote", profile: remote, container: true, fixed: true, releaseDelay: 3},
		{name: "container-add", profile: verifyAdd, container: true, held: true, releaseDelay: 3, lostAway: true, addrs: 1},
		{name: "warm", profile: ahead(local), lookup: true, ahead: true, reboot: true, calls: 3},
		{name: "warm-remote", profile: ahead(remote), ahead: true, reboot: true},
		{name: "warm-another", profile: ahead(another), ahead: true, lostJournal: true, calls: 3},
		{name: "warm-refill", profile: ahead(local), lookup: true, ahead: true, refill: 1},
		{name: "warm-lost", profile: ahead(local), lookup: true, ahead: true, lostSpare: true, calls: 3},
		{name: "warm-delay", profile: ahead(node), ahead: true, fixed: true, releaseDelay: 3, reboot: true, olderStore: true},
		{name: "warm-away", profile: ahead(node), ahead: true, fixed: true, releaseDelay: 3, lostAway: true, addrs: 1, calls: 3},
		{name: "warm-gc", profile: ahead(local), lookup: true, ahead: true, gc: true, calls: 3},
		{name: "warm-leaves", profile: ahead(another), ahead: true, leaves: true},
		{name: "given-up", profile: local, lookup: true, families: both, lostLease: true, held: true},
	}
	for i := range all {
		c := &all[i]
		c.container = c.container || c.ahead
		c.calls, c.faults, c.pods, c.late, c.crash = cmp.Or(c.calls, 2), 1, 1, 1, !c.lostAway
		if c.lostLease || c.lostAddress && !c.lookup || c.strictDel && c.addrs == 0 && c.profile.NothingKnown() || c.ahead && !c.lostSpare && !c.lostAway && !c.olderStore {
			c.pods = 0 // nothing but a lease keeps it from the address, or it would fill the range
		}
		c.addrs = cmp.Or(c.addrs, 2)
		if c.container && c.profile.OnNode() && !c.leaves && !c.held && !c.ahead {
			c.calls = 3
		}
		if c.families == nil {
			c.families = v4
		}
	}
	return all
}
