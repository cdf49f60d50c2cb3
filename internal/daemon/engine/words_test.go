package engine

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/internal/containerid"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

// kinds are the kinds of errors as words.
var kinds = []string{"forbidden", "family-disabled", "unknown-pool", "not-found", "exists", "failed", "busy", "stopping"}

func kindOf(word string) attachment.Kind { return attachment.Kind(strings.ReplaceAll(word, "-", " ")) }

func ordinary(uid int) User { return User{ID: uid, Ordinary: uid != 0} }

// begun is a request of begin.
type begun struct {
	leave  context.CancelFunc
	done   chan struct{}
	answer string
	err    error
}

// begin starts a request with a name.
func (f *fixture) begin(name string, words ...string) {
	ctx, leave := context.WithCancel(context.Background())
	b := &begun{leave: leave, done: make(chan struct{})}
	f.begun[name] = b
	go func() {
		defer close(b.done)
		b.answer, b.err = f.ask(ctx, words)
	}()
}

// answered makes a request, or waits for the answer of one.
func (f *fixture) answered(words []string) (string, error) {
	switch words[0] {
	case "end":
		b := f.begun[words[1]]
		<-b.done
		return b.answer, b.err
	case "left": // its client has left before
		ctx, leave := context.WithCancel(context.Background())
		leave()
		return f.ask(ctx, words[1:])
	}
	return f.ask(context.Background(), words)
}

// ask makes a request. Its options and addresses may stand anywhere behind the first word.
func (f *fixture) ask(ctx context.Context, words []string) (answer string, err error) {
	options, args := map[string]string{}, []string(nil)
	var ips []netip.Addr
	for _, w := range words[1:] {
		if key, value, ok := strings.Cut(w, "="); ok {
			options[key] = value
		} else if ip, err := netip.ParseAddr(w); err == nil {
			ips = append(ips, ip)
		} else {
			args = append(args, strings.TrimPrefix(w, "-"))
		}
	}
	has := func(word string) bool { return slices.Contains(args, word) }
	var c call.Container
	if len(args) == 2 {
		c = podContainer(args[0], args[1])
		c.NetNS, c.IfName = options["netns"], cmp.Or(options["ifname"], c.IfName)
		c.Args = strings.TrimSuffix(c.Args+";"+options["args"], ";")
	}
	network, pool, user := cmp.Or(options["network"], "net"), options["pool"], ordinary(numberOf(cmp.Or(options["uid"], "0")))
	var a Attachment
	switch words[0] {
	case "allocate": // OWNER [FAMILY] [expire]
		r := AllocateRequest{Owner: args[0], Pool: pool, Expire: has("expire"), User: user}
		for _, family := range []attachment.Family{attachment.IPv4, attachment.IPv6} {
			if has(string(family)) {
				r.Family = family
			}
		}
		a, err = f.Allocate(ctx, r)
	case "restore": // OWNER IP [IP of the other family]
		a, err = f.Restore(ctx, RestoreRequest{Owner: args[0], Pool: pool, IP: ips[0], Also: append(ips, netip.Addr{})[1], User: user})
	case "release": // IP... [owner=OWNER] [now]
		for _, ip := range ips {
			if a, err = f.Release(ctx, ReleaseRequest{IP: ip, Pool: pool, Owner: options["owner"], SkipDelay: has("now"), User: user}); err != nil {
				break
			}
		}
	case "add": // ID POD
		a, err = f.AddContainer(ctx, network, c)
	case "del":
		a, err = f.DelContainer(ctx, network, c)
	case "check":
		a, err = f.CheckContainer(ctx, network, c)
	case "del-left": // at the time of mark
		done, err := f.DelLeft(ctx, network, c, f.marked)
		return strconv.FormatBool(done), err
	case "release-container": // ID, unless it was created or used since mark
		done, err := f.ReleaseContainer(ctx, attachment.Key{Pool: client.DefaultPool, Owner: attachment.ContainerOwner(args[0], "eth0")}, func(a Attachment) bool {
			return (!has("unless-created") || a.Created.Before(f.marked)) && (!has("unless-used") || a.LastUsed.Before(f.marked))
		})
		return strconv.FormatBool(done), err
	case "gc":
		err = f.GC(ctx, network, nil)
	case "stop": // [within=DURATION]
		ctx, cancel := context.WithTimeout(ctx, durationOf(cmp.Or(options["within"], "24h")))
		defer cancel()
		err = f.Stop(ctx)
	case "while-unused": // ID
		done := false
		if unused := f.WhileUnused(args[0], func() { done = true }); unused != done {
			err = fmt.Errorf("got %t, and done is %t", unused, done)
		}
		return strconv.FormatBool(done), err
	default:
		f.t.Errorf("unknown command: %q", words)
	}
	return textOf(a.Addrs()), err
}

// show returns an attachment as text, or what the plugin has for a container ID.
func (f *fixture) show(name string) string {
	if id, ok := strings.CutPrefix(name, "plugin:"); ok {
		return textOf(f.node.store[f.id(id)])
	}
	a := f.get(name)
	if a.Owner == "" {
		return "none"
	}
	all := []any{a.State}
	for _, ip := range a.Addrs() {
		all = append(all, ip)
	}
	for generation := 1; generation < 9; generation++ {
		if a.IDInUse() == containerid.Generation(a.ContainerID, generation) {
			all = append(all, fmt.Sprint("g", generation))
		}
	}
	unclaimed := func(ip netip.Addr) bool { return !a.Claimed(attachment.FamilyOf(ip)) }
	for _, mark := range []struct {
		shown bool
		text  string
	}{
		{a.Expiration != nil, "expires"},
		{slices.ContainsFunc(a.Addrs(), unclaimed), fmt.Sprint("claims ", a.Claims)},
		{a.Lost, "lost"},
		{a.LastError != "", "error"},
	} {
		if mark.shown {
			all = append(all, mark.text)
		}
	}
	return textOf(all)
}

// id returns a container ID, which may be that of an owner, or the noted one.
func (f *fixture) id(text string) string {
	if text == "@noted" {
		return f.noted
	}
	if owner, ok := strings.CutPrefix(text, "@"); ok {
		return f.get(owner).IDInUse()
	}
	return text
}

// holder returns the container ID for which the plugin has an address.
func (f *fixture) holder(ip string) string {
	for id, ips := range f.node.store {
		if slices.Contains(ips, addr(ip)) {
			return id
		}
	}
	f.t.Errorf("the plugin does not have %s", ip)
	return ""
}

// each joins what is shown of each attachment.
func (f *fixture) each(show func(Attachment) string) string {
	var all []string
	for a := range f.All() {
		if text := show(a); text != "" {
			all = append(all, text)
		}
	}
	return strings.Join(all, " ")
}

// numbers returns the numbers that are not zero, sorted by name.
func numbers[K ~string](all map[K]int) string {
	var text []string
	for name, n := range all {
		if n > 0 {
			text = append(text, fmt.Sprint(name, "=", n))
		}
	}
	slices.Sort(text)
	return strings.Join(text, " ")
}

// checks return what is compared with the rest of the line.
var checks = map[string]func(f *fixture) string{
	"owners": func(f *fixture) string {
		return f.each(func(a Attachment) string {
			if strings.HasPrefix(a.Owner, attachment.GeneratedOwnerPrefix) {
				return "generated"
			}
			return a.Owner
		})
	},
	"addresses": func(f *fixture) string { return f.each(func(a Attachment) string { return textOf(a.Addrs()) }) },
	"invocations": func(f *fixture) string {
		return f.each(func(a Attachment) string { return strconv.Itoa(len(a.Invocations)) })
	},
	"ranges": func(f *fixture) string {
		return f.each(func(a Attachment) string { return cmp.Or(string(a.Range), "inside") })
	},
	"pods":    func(f *fixture) string { return f.each(func(a Attachment) string { return a.Pod() }) },
	"ids":     func(f *fixture) string { return f.each(func(a Attachment) string { return a.IDInUse() }) },
	"stored":  func(f *fixture) string { return strconv.Itoa(len(f.node.store)) },
	"records": func(f *fixture) string { return strconv.Itoa(len(f.node.records)) },
	"free":    func(f *fixture) string { return strconv.Itoa(f.freeProcesses()) },
	"took":    func(f *fixture) string { return f.took.String() },
	"callers": func(f *fixture) string { return strconv.Itoa(len(f.callers.known)) },
	"counts": func(f *fixture) string {
		return numbers(map[string]int{
			"lost": int(f.Count(attachment.EventLost)), "reacquired": int(f.Count(attachment.EventReacquired)),
			"duplicate": int(f.Count(attachment.EventDuplicate)), "expired": int(f.Count(attachment.EventExpired)),
			"handed-over": int(f.Count(attachment.EventHandedOver)),
		})
	},
	"queues": func(f *fixture) string { return numbers(f.QueueLengths()) },
	// states are the numbers of the records.
	"states": func(f *fixture) string {
		states := map[attachment.State]int{}
		for _, r := range f.node.records {
			states[r.State]++
		}
		return numbers(states)
	},
	// netns are the namespaces of the recorded invocations.
	"netns": func(f *fixture) string {
		var all []string
		for _, r := range f.node.records {
			if fmt.Sprint(r.Invocations) != fmt.Sprint(f.get(r.Owner).Invocations) {
				all = append(all, "memory differs:")
			}
			for _, inv := range r.Invocations {
				all = append(all, inv.NetNS)
				if inv.PrevResult == nil {
					all = append(all, "without a result")
				}
			}
		}
		return strings.Join(all, " ")
	},
	// events are those since the last time.
	"events": func(f *fixture) string {
		f.observer.mu.Lock()
		defer f.observer.mu.Unlock()
		defer func() { f.observer.events = nil }()
		return strings.Join(f.observer.events, ", ")
	},
	// waits are the different ones since the start.
	"waits": func(f *fixture) string {
		f.observer.mu.Lock()
		defer f.observer.mu.Unlock()
		return strings.Join(slices.Compact(slices.Sorted(slices.Values(f.observer.waits))), ", ")
	},
	// supply is the number of leases ahead, and the wanted one.
	"supply": func(f *fixture) string {
		w := f.Warm()[f.opts.Pools[0]]
		return fmt.Sprintf("%d/%d %t", w.Ready, w.Wanted, w.Err == nil)
	},
	// calls are those of the plugin since trace, or the last time.
	"calls": func(f *fixture) string {
		defer func() { f.calls = nil }()
		return strings.Join(f.calls, ", ")
	},
}

// commands are what a line can do beside requests.
var commands = map[string]func(f *fixture, words []string){
	"sleep":   func(f *fixture, words []string) { time.Sleep(durationOf(words[0])) },
	"restart": func(f *fixture, words []string) { f.restart(strings.Join(words, " ")) },
	"kill":    func(f *fixture, _ []string) { f.node.kill(f.t, f.Engine) },
	"start":   func(f *fixture, words []string) { f.start(strings.Join(words, " ")) },
	"lose-journal": func(f *fixture, words []string) {
		f.node.kill(f.t, f.Engine)
		clear(f.node.records)
		f.restart(strings.Join(words, " "))
	},
	// clock-ahead is a restart after a run whose clock was a year ahead.
	"clock-ahead": func(f *fixture, words []string) {
		f.node.kill(f.t, f.Engine)
		f.node.shiftTimes(365 * 24 * time.Hour)
		f.restart(strings.Join(words, " "))
	},
	"set": func(f *fixture, words []string) { setUp(f.node, &Options{}, strings.Join(words, " ")) },
	// fault injects faults from now on: STEP=FAULT at each step of that kind, STEP#2=FAULT at the second one.
	"fault": func(f *fixture, words []string) { f.inject(f.faultsOf(words)) },
	// begin NAME REQUEST starts a request, whose client leave makes leave; end waits for its answer.
	"begin":            func(f *fixture, words []string) { f.begin(words[0], words[1:]...) },
	"events-until-now": func(f *fixture, _ []string) { checks["events"](f); f.logged.Reset() },
	// each-event-logged wants a line with the fields of the router for each event of the background.
	"each-event-logged": func(f *fixture, _ []string) {
		for _, event := range f.observer.events {
			action, outcome, _ := strings.Cut(event, " ")
			failed := strings.HasPrefix(outcome, string(OutcomeFailed))
			if !slices.Contains([]string{"cleanup", "expire", "reacquire", "retire"}, action) {
				continue
			}
			if !slices.ContainsFunc(f.logged.AllEntries(), func(e *logrus.Entry) bool {
				ips, _ := e.Data["ipAddrs"].([]netip.Addr)
				id, _ := e.Data["containerID"].(string)
				_, timed := e.Data["duration"].(time.Duration)
				return fmt.Sprint(e.Data["action"]) == action && (e.Level == logrus.InfoLevel && e.Data["error"] == nil) != failed && timed && len(ips) == 2 &&
					e.Data["owner"] == "router" && e.Data["poolName"] == "default" && strings.HasPrefix(id, "cilium-agent-router-")
			}) {
				f.t.Errorf("no line about %q with the fields of the router among %+v", event, f.logged.AllEntries())
			}
		}
	},
	"leave": func(f *fixture, words []string) { f.begun[words[0]].leave() },
	// flood UID... begins ten requests of each user.
	"flood": func(f *fixture, words []string) {
		for i := range 10 {
			for _, uid := range words {
				f.begin("flood", "allocate", fmt.Sprintf("flood-%s-%d", uid, i), "uid="+uid)
			}
		}
	},
	// open lets an ADD pass the gate, or all of them.
	"open": func(f *fixture, words []string) {
		if len(words) == 0 {
			f.openGate()
		} else {
			f.openAll()
		}
	},
	// lock locks the entry of an owner, as an operation on it does.
	"lock":   func(f *fixture, words []string) { f.locked[words[0]] = f.lock(words[0]) },
	"unlock": func(f *fixture, words []string) { f.locked[words[0]].end(); delete(f.locked, words[0]) },
	// publish OWNER WHAT changes an attachment in memory.
	"publish": func(f *fixture, words []string) {
		f.publish(words[0], func(s *attachment.Status) {
			r := s.Rec.Clone()
			switch words[1] {
			case "lost":
				s.Lost, s.Verified = true, time.Time{}
			case "verified":
				s.Lost, s.Verified = false, time.Now()
			case "adding":
				r.State, s.Rec = attachment.Adding, &r
			}
		})
	},
	// doubt makes the background verify an attachment.
	"doubt": func(f *fixture, words []string) {
		op := f.lock(words[0])
		op.entry.doubted = true
		f.pools[client.DefaultPool].workqueue.add(op.entry)
		op.end()
	},
	// earlier OWNER ID [refused] adds an invocation of an earlier ADD.
	"earlier": func(f *fixture, words []string) {
		f.addInvocation(words[0], func(c *call.Invocation) {
			c.ContainerID, c.Args, c.AddRefused = words[1], "A=b", slices.Contains(words, "refused")
		})
	},
	// copy OWNER ID [owner=OWNER] [state=STATE] adds a younger copy of a record to the disk.
	"copy": func(f *fixture, words []string) {
		r := f.get(words[0]).Clone()
		r.ContainerID, r.Created = words[1], r.Created.Add(time.Second)
		r.Invocations[0].ContainerID = words[1]
		for _, w := range words[2:] {
			switch key, value, _ := strings.Cut(w, "="); key {
			case "owner":
				r.Owner = value
			case "state":
				r.State, r.Claims = attachment.State(value), nil
			}
		}
		f.node.with(func(n *fakeNode) { n.records[r.ContainerID] = r })
	},
	"forget": func(f *fixture, words []string) { delete(f.node.records, f.get(words[0]).ContainerID) },
	// clear empties the plugin's store, store ID IP... sets what it has for an ID, and lose removes what has an address.
	"clear": func(f *fixture, _ []string) { f.node.with(func(n *fakeNode) { clear(n.store) }) },
	"store": func(f *fixture, words []string) {
		id := f.id(words[0])
		f.node.with(func(n *fakeNode) {
			delete(n.store, id)
			for _, ip := range words[1:] {
				n.store[id] = append(n.store[id], addr(ip))
			}
		})
	},
	"lose": func(f *fixture, words []string) { delete(f.node.store, f.holder(words[0])) },
	// release-all OWNER releases its addresses.
	"release-all": func(f *fixture, words []string) {
		a := f.get(words[0])
		if _, err := f.answered(wordsOf("release " + textOf(a.Addrs()))); err != nil {
			f.t.Error(err)
		}
	},
	// mark notes the time, or one before or after it.
	"mark": func(f *fixture, words []string) { f.marked = time.Now().Add(durationOf(append(words, "0s")[0])) },
	// note OWNER and note-holder IP note a container ID as @noted. unused wants it to have no attachment.
	"note":        func(f *fixture, words []string) { f.noted = f.get(words[0]).IDInUse() },
	"note-holder": func(f *fixture, words []string) { f.noted = f.holder(words[0]) },
	"unused": func(f *fixture, words []string) {
		if slices.Contains(strings.Fields(checks["ids"](f)), f.noted) {
			f.t.Errorf("%s is used: %+v", f.noted, f.List())
		}
	},
	// new-id OWNER wants a random container ID, another one than the noted one, and notes it; new-uuid likewise.
	"new-id": func(f *fixture, words []string) {
		a := f.get(words[0])
		if id := a.IDInUse(); id == f.noted || id == a.ContainerID || !containerid.Match(id) {
			f.t.Errorf("the container ID is %s, after %s", id, f.noted)
		}
		f.noted = a.IDInUse()
	},
	"new-uuid": func(f *fixture, words []string) {
		uuid := f.get(words[0]).Expiration.UUID
		if uuid == "" || uuid == f.noted {
			f.t.Errorf("the UUID is %q, after %q", uuid, f.noted)
		}
		f.noted = uuid
	},
	// trace makes calls show a field of each plugin call. Container IDs are shown as a, b, and so on.
	"trace": func(f *fixture, words []string) {
		f.calls, f.past = nil, nil
		known := map[string]string{}
		f.node.with(func(n *fakeNode) {
			n.onCall = func(_ context.Context, verb string, c call.Call) {
				if known[c.ContainerID] == "" {
					known[c.ContainerID] = string(rune('a' + len(known)))
				}
				field := map[string]any{
					"id": known[c.ContainerID], "network": c.Invocation.Network, "requested": c.Requested, "previous": string(c.PrevResult),
					"netns": c.NetNS, "args": c.Args[strings.LastIndex(c.Args, "=")+1:], "owner": c.Owner, "free": f.freeProcesses(),
				}[words[0]]
				f.calls = append(f.calls, fmt.Sprint(verb, " ", field))
			}
		})
	},
	// count STEP LEAST MOST counts a step since trace.
	"count": func(f *fixture, words []string) {
		f.steps()
		all := slices.DeleteFunc(slices.Clone(f.past), func(step string) bool { return !strings.HasPrefix(step, words[0]) })
		if n := len(all); n < numberOf(words[1]) || n > numberOf(words[2]) {
			f.t.Errorf("%d times %s; want %s to %s", n, words[0], words[1], words[2])
		}
	},
	// turns VERB PREFIX MOST ALL wants the first call for an owner with a prefix among the first ones.
	"turns": func(f *fixture, words []string) {
		adds := slices.DeleteFunc(slices.Clone(f.calls), func(c string) bool { return !strings.HasPrefix(c, words[0]) })
		first := slices.IndexFunc(adds, func(c string) bool { return strings.HasPrefix(c, words[0]+" "+words[1]) })
		if first < 0 || first > numberOf(words[2]) || len(adds) != numberOf(words[3]) {
			f.t.Errorf("the first call of %s is number %d of %q", words[1], first, adds)
		}
	},
	"agrees": func(f *fixture, _ []string) { f.wantStoreAgrees() },
	// gone: neither attachment nor record nor address is left.
	"gone": func(f *fixture, _ []string) {
		if all := f.List(); len(all)+len(f.node.records)+len(f.node.store) > 0 {
			f.t.Errorf("left are %+v, the records %v, and in the store %v", all, f.node.records, f.node.store)
		}
	},
	// warm LEAST [MOST] wants a number of leases ahead, warm-same the same ones as the last time.
	"warm": func(f *fixture, words []string) {
		if n := len(f.warm()); n < numberOf(words[0]) || n > numberOf(words[len(words)-1]) {
			f.t.Errorf("there are %d leases ahead; want %s", n, words)
		}
		f.wantStoreAgrees()
	},
	"warm-same": func(f *fixture, _ []string) {
		if got := strings.Join(f.warm(), " "); f.noted != "" && got != f.noted {
			f.t.Errorf("there are %s; want %s", got, f.noted)
		} else {
			f.noted = got
		}
	},
	// lent ID POD TRUE reports whether the container has a lease that was acquired ahead.
	"lent": func(f *fixture, words []string) {
		a := f.get(attachment.ContainerOwner(words[0], "eth0"))
		if lent := a.Lent != nil; len(a.LastResult()) == 0 || a.Container().Args != podContainer(words[0], words[1]).Args || strconv.FormatBool(lent) != words[2] {
			f.t.Errorf("the attachment of the container is %+v", a)
		}
	},
	// forgotten: memory has no container ID without an attachment.
	"forgotten": func(f *fixture, _ []string) {
		if ids, all := len(f.byID), len(f.sorted); ids > all {
			f.t.Errorf("%d container IDs are known, and %d attachments", ids, all)
		}
	},
	// unverified OWNER TEXT wants an attachment that was not verified in this run, and why.
	"unverified": func(f *fixture, words []string) {
		if a := f.get(words[0]); !strings.Contains(a.LastError, words[1]) || !a.Verified.IsZero() {
			f.t.Errorf("%s was verified at %v; last error %q, want %q", words[0], a.Verified, a.LastError, words[1])
		}
	},
	"logged": func(f *fixture, words []string) {
		for _, e := range f.logged.AllEntries() {
			if strings.Contains(e.Message, words[0]) {
				return
			}
		}
		f.t.Errorf("the log lacks %q", words[0])
	},
}

// faults are the faults as words.
var faults = map[string]fault{
	"refused": refused, "error-after": errorAfter, "not-started": notStarted, "outage": outage, "says-lost": saysLost,
	"timeout-before": timeoutBefore, "timeout-after": timeoutAfter, "timeout-late": timeoutLate,
	"failed": writeFailed, "unknown": writeUnknown, "killed-before": killBefore, "killed-after": killAfter,
}

// faultsOf returns the faults of the command fault; "none" is none.
func (f *fixture) faultsOf(words []string) func(string) fault {
	seen, at := map[string]int{}, map[string]fault{}
	for _, w := range words {
		step, injected, _ := strings.Cut(w, "=")
		name, _, _ := strings.Cut(step, "#")
		if !slices.Contains([]string{"ADD", "DEL", "CHECK", "adding", "held", "releasing", "remove"}, name) || faults[injected] == "" {
			if w != "none" {
				f.t.Errorf("unknown fault: %s", w)
			}
		}
		at[step] = faults[injected]
	}
	return func(step string) fault {
		step = strings.TrimPrefix(step, "write ")
		seen[step]++
		return cmp.Or(at[fmt.Sprint(step, "#", seen[step])], at[step])
	}
}
