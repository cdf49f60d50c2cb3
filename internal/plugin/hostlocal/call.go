package hostlocal

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/plugins/plugins/ipam/host-local/backend/allocator"

	"github.com/delegated-ipam/delegated-ipam/internal/failpoint"
	"github.com/delegated-ipam/delegated-ipam/internal/files"
)

// Args are what host-local reads: CNI_CONTAINERID, CNI_IFNAME and CNI_ARGS, and the network configuration.
type Args struct {
	ContainerID, IfName, CNIArgs string
	Config                       []byte
	// An ADD gets an address that is in Exclude, or of which Taken reports true, only if it requests it. Taken may be
	// nil. host-local has no such parameters.
	Exclude []netip.Prefix
	Taken   func(netip.Addr) bool
}

// NotStartedError is a call that has changed nothing and will not: the store could not be opened or locked.
type NotStartedError struct{ error }

func (e NotStartedError) Unwrap() error { return e.error }

// UnknownError is a call of which it is not known what it, or a power loss, leaves.
type UnknownError struct{ error }

func (e UnknownError) Unwrap() error { return e.error }

// Call is host-local of containernetworking/plugins v1.10.0 in this process: its configuration, allocator, files, lock
// and texts of errors. It returns the result of ADD, and nil for the other verbs (DEL, CHECK, GC). The store is durable
// when it returns. It waits for the lock until ctx ends. The error is a NotStartedError, an UnknownError, or that with
// which the plugin refuses the call.
func (all *Stores) Call(ctx context.Context, command string, a Args) (result *current.Result, err error) {
	c, dir, err := loadConfig(a.Config, a.CNIArgs)
	if err != nil {
		return nil, err
	}
	var dns types.DNS
	if command == "ADD" && c.ResolvConf != "" {
		if dns, err = resolvConf(c.ResolvConf); err != nil {
			return nil, err
		}
	}
	result, err = all.change(ctx, dir, func(l *locked) (*current.Result, error) {
		switch command {
		case "ADD":
			return allocate(l, c, a)
		case "DEL":
			return nil, release(l, c, a)
		case "CHECK":
			return nil, find(l, a)
		case "GC":
			return nil, collect(l, a)
		}
		return nil, fmt.Errorf("host-local has no %s", command)
	})
	if result != nil {
		result.DNS = dns
	}
	return result, err
}

// maxRanges bounds the ranges of a configuration: the library compares each with each. A configuration of smallConfig
// bytes has fewer.
const maxRanges, smallConfig = 1000, 16 << 10

// loadConfig parses a network configuration, and returns the directory of the network, too. The library panics on some
// that are not valid.
func loadConfig(config []byte, cniArgs string) (c *allocator.IPAMConfig, dir string, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("the network configuration cannot be parsed: %v", cause)
		}
	}()
	if len(config) > smallConfig {
		var n struct {
			IPAM          struct{ Ranges [][]json.RawMessage }
			RuntimeConfig struct{ IPRanges [][]json.RawMessage }
		}
		_ = json.Unmarshal(config, &n) // its errors are those of the library
		if count := len(slices.Concat(slices.Concat(n.IPAM.Ranges, n.RuntimeConfig.IPRanges)...)); count > maxRanges {
			return nil, "", fmt.Errorf("%d ranges; expected at most %d", count, maxRanges)
		}
	}
	if c, _, err = allocator.LoadIPAMConfig(config, cniArgs); err == nil {
		dir, err = directoryOf(c)
	}
	return c, dir, err
}

// CheckConfig returns why host-local refuses a network configuration, in every call; nil if it accepts it.
func CheckConfig(config []byte) error {
	_, _, err := loadConfig(config, "")
	return err
}

// Release removes the leases of a network configuration that ended says to have ended, and returns them. written is when
// the file of a lease was written. It waits for the lock, and errors are as of Call.
func (all *Stores) Release(ctx context.Context, config []byte, ended func(l Lease, written time.Time) bool) (released []Lease, err error) {
	_, dir, err := loadConfig(config, "")
	if err != nil {
		return nil, err
	}
	_, err = all.change(ctx, dir, func(l *locked) (*current.Result, error) {
		released, err = l.release(ended)
		return nil, err
	})
	return released, err
}

// Free removes the lease of an address if a container ID has it and unused, which gets the removal, does it; it reports
// whether that was so. It waits for the lock, and errors are as of Call.
func (all *Stores) Free(ctx context.Context, config []byte, ip netip.Addr, containerID string, unused func(remove func()) bool) (freed bool, err error) {
	_, dir, err := loadConfig(config, "")
	if err != nil {
		return false, err
	}
	_, err = all.change(ctx, dir, func(l *locked) (*current.Result, error) {
		lease, err := Read(l.dir, ip)
		if errors.Is(err, fs.ErrNotExist) || err == nil && lease.ContainerID != containerID {
			return nil, nil
		}
		if err == nil {
			freed = unused(func() { err = l.remove(ip) })
		}
		return nil, err
	})
	return freed && err == nil, err
}

// defaultDataDir is host-local's.
const defaultDataDir = "/var/lib/cni/networks"

// directoryOf returns the directory of the network.
func directoryOf(c *allocator.IPAMConfig) (string, error) {
	dir := cmp.Or(c.DataDir, defaultDataDir)
	switch {
	case !filepath.IsAbs(dir):
		return "", fmt.Errorf("ipam.dataDir is %q; expected an absolute path", dir)
	case !filepath.IsLocal(c.Name) || filepath.Base(c.Name) != c.Name:
		return "", fmt.Errorf("network name %q; expected the name of a directory", c.Name)
	}
	return filepath.Join(dir, c.Name), nil
}

// change is a change that a call makes under the lock of a directory, and its outcome.
type change struct {
	ctx    context.Context
	do     func(*locked) (*current.Result, error)
	begun  bool
	result *current.Result
	err    error
}

// batch are the changes of concurrent calls. They are made one after the other and become durable together: a file
// system lets no change of a directory begin while it writes the one before.
type batch struct {
	changes []*change
	done    chan struct{}
}

// change makes a change in a directory durable, with those of concurrent calls.
func (all *Stores) change(ctx context.Context, path string, do func(*locked) (*current.Result, error)) (*current.Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, NotStartedError{err}
	}
	n, c := all.network(path), &change{ctx: ctx, do: do}
	n.joining.Lock()
	first := n.next == nil
	if first {
		n.next = &batch{done: make(chan struct{})}
	}
	b := n.next
	b.changes = append(b.changes, c)
	n.joining.Unlock()
	switch {
	case first && n.changing.TryLock():
		n.run(path, b)
	case first:
		go func() {
			n.changing.Lock()
			n.run(path, b)
		}()
	}
	select {
	case <-b.done:
		return c.result, c.err
	case <-ctx.Done():
	}
	n.joining.Lock()
	begun := c.begun
	n.joining.Unlock()
	if !begun { // and it will not begin
		return nil, NotStartedError{fmt.Errorf("%s is in use by other calls of this process: %w", path, ctx.Err())}
	}
	<-b.done
	return c.result, c.err
}

// run makes the changes of a batch, without those of calls that have ended meanwhile; changing is held, and unlocked.
func (n *network) run(path string, b *batch) {
	defer n.changing.Unlock()
	defer close(b.done)
	n.joining.Lock()
	n.next = nil
	changes := slices.DeleteFunc(b.changes, func(c *change) bool {
		ended := c.ctx.Err()
		if c.begun = ended == nil; !c.begun {
			c.err = NotStartedError{fmt.Errorf("%s was in use by other calls of this process: %w", path, ended)}
		}
		return !c.begun
	})
	n.joining.Unlock()
	if len(changes) == 0 {
		return
	}
	l, err := n.makeAll(path, changes)
	if l != nil {
		l.changed = l.changed || !n.synced
		err = l.end()
		n.synced = err == nil
	}
	for _, c := range changes {
		switch {
		case l == nil:
			c.err = NotStartedError{err}
		case err != nil:
			c.result, c.err = nil, UnknownError{errors.Join(c.err, fmt.Errorf("the leases may not be durable: %w", err))}
		}
	}
}

// untilLast returns a context that ends when the time of every call has ended; of a single one it is its own.
func untilLast(changes []*change) (context.Context, context.CancelFunc) {
	if len(changes) == 1 {
		return context.WithCancel(changes[0].ctx)
	}
	var last time.Time
	for _, c := range changes {
		deadline, ok := c.ctx.Deadline()
		if !ok {
			return context.WithCancel(context.WithoutCancel(c.ctx))
		}
		if deadline.After(last) {
			last = deadline
		}
	}
	return context.WithDeadline(context.Background(), last)
}

// makeAll makes changes, which are not durable yet. Without any it returns no locked.
func (n *network) makeAll(path string, changes []*change) (*locked, error) {
	if err := makeDir(path); err != nil {
		return nil, err
	}
	dir, err := Open(path, true)
	if err != nil {
		return nil, err
	}
	ctx, cancel := untilLast(changes)
	defer cancel()
	unlock, err := Lock(ctx, dir, true)
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	defer unlock()
	n.mu.Lock()
	defer n.mu.Unlock()
	l := &locked{dir: dir}
	if err := n.current(path); err == nil {
		l.index = n.index
	}
	opened, err := dir.Stat(".")
	if err == nil && l.index != nil && !os.SameFile(opened, n.info) {
		err = fmt.Errorf("%s: replaced while it was opened", path)
	}
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	for _, c := range changes {
		if ended := c.ctx.Err(); ended != nil {
			c.err = NotStartedError{fmt.Errorf("%s was locked by others: %w", path, ended)}
			continue
		}
		l.deadline, _ = c.ctx.Deadline()
		c.make(l)
	}
	if l.index == nil && n.index != nil { // after a panic
		n.close()
		n.index = nil
	}
	return l, nil
}

func (c *change) make(l *locked) {
	defer func() {
		if cause := recover(); cause != nil {
			c.result, c.err, l.index = nil, UnknownError{fmt.Errorf("panic: %v", cause)}, nil
		}
	}()
	c.result, c.err = c.do(l)
}

// dirMode is that of host-local's directories.
const dirMode = 0o755

// makeDir makes a directory and those above it with durable names.
func makeDir(path string) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	above := filepath.Dir(path)
	if err := makeDir(above); err != nil {
		return err
	}
	failpoint.Reach(failpoint.LeasesMaking)
	err := os.Mkdir(path, dirMode)
	failpoint.Reach(failpoint.LeasesMade)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	err = files.Sync(os.Open(above))
	failpoint.Reach(failpoint.LeasesDurable)
	return err
}

// allocate allocates an address from each range set: a requested one that it has, or the next. It fails as a whole.
func allocate(l *locked, c *allocator.IPAMConfig, a Args) (_ *current.Result, err error) {
	result := &current.Result{CNIVersion: current.ImplementedSpecVersion, Routes: c.Routes}
	var used []*allocator.IPAllocator
	defer func() {
		if err != nil {
			for _, u := range used {
				err = undone(err, u.Release(a.ContainerID, a.IfName))
			}
		}
	}()
	var requested []net.IP
	for _, ip := range c.IPArgs {
		if !slices.ContainsFunc(requested, ip.Equal) {
			requested = append(requested, ip)
		}
	}
	for i, set := range c.Ranges {
		var ip net.IP
		if at := slices.IndexFunc(requested, set.Contains); at >= 0 {
			ip = requested[at]
			requested = slices.Delete(requested, at, at+1)
		}
		if l.taken = a.Taken; ip != nil {
			l.taken = nil
		} else {
			set, err = l.without(set, a)
		}
		from := allocator.NewIPAllocator(&set, l, i)
		var found *current.IPConfig
		if err == nil {
			found, err = from.Get(a.ContainerID, a.IfName, ip)
		}
		if err != nil {
			return nil, fmt.Errorf("failed to allocate for range %d: %w", i, err)
		}
		used, result.IPs = append(used, from), append(result.IPs, found)
	}
	if len(requested) > 0 {
		text := "failed to allocate all requested IPs:"
		for _, ip := range requested {
			text += " " + ip.String()
		}
		return nil, errors.New(text)
	}
	return result, nil
}

// undone returns the error of an ADD whose leases were removed, or were not.
func undone(err, removeErr error) error {
	if removeErr != nil {
		return UnknownError{errors.Join(err, removeErr)}
	}
	return err
}

// without returns a range set without the excluded addresses: the allocator tries one address after the other, and a
// prefix may have more than it could. If the container interface has one of them, nothing is left out: host-local refuses
// a second address of a range set.
func (l *locked) without(set allocator.RangeSet, a Args) (allocator.RangeSet, error) {
	free := set
	for _, p := range a.Exclude {
		free = cut(free, p.Masked())
	}
	has := func(ip net.IP) bool { return set.Contains(ip) && !free.Contains(ip) }
	switch {
	case len(a.Exclude) > 0 && slices.ContainsFunc(l.GetByID(a.ContainerID, a.IfName), has):
		return set, nil
	case len(free) == 0:
		return nil, fmt.Errorf("no IP addresses available in range set: %s", set.String())
	}
	return free, nil
}

// cut returns a range set without a prefix.
func cut(set allocator.RangeSet, p netip.Prefix) (left allocator.RangeSet) {
	first, last := p.Addr(), lastIn(p)
	for _, r := range set {
		start, _ := netip.AddrFromSlice(r.RangeStart)
		end, _ := netip.AddrFromSlice(r.RangeEnd)
		if last.Less(start) || end.Less(first) { // also of another family
			left = append(left, r)
			continue
		}
		before, after := r, r
		if start.Less(first) {
			before.RangeEnd = first.Prev().AsSlice()
			left = append(left, before)
		}
		if last.Less(end) {
			after.RangeStart = last.Next().AsSlice()
			left = append(left, after)
		}
	}
	return left
}

// release releases the addresses of all range sets.
func release(l *locked, c *allocator.IPAMConfig, a Args) error {
	var texts []string
	for i, set := range c.Ranges {
		if err := allocator.NewIPAllocator(&set, l, i).Release(a.ContainerID, a.IfName); err != nil {
			texts = append(texts, err.Error())
		}
	}
	if texts != nil {
		return errors.New(strings.Join(texts, ";"))
	}
	return nil
}

// find finds an address of the container interface, of any range.
func find(l *locked, a Args) error {
	if held, err := l.leasesOf(a.ContainerID, a.IfName); len(held) > 0 || err != nil {
		return err
	}
	return fmt.Errorf("host-local: Failed to find address added by container %s", a.ContainerID)
}

// collect releases what is not among the valid attachments of the configuration.
func collect(l *locked, a Args) error {
	var n types.NetConf
	if err := json.Unmarshal(a.Config, &n); err != nil {
		return fmt.Errorf("failed to parse network config: %w", err)
	}
	var valid []Lease
	for _, v := range n.ValidAttachments {
		valid = append(valid, Lease{ContainerID: strings.TrimSpace(v.ContainerID), Interface: v.IfName})
	}
	return l.keep(valid)
}

// MaxResolvConf bounds the file of ipam.resolvConf, in bytes.
const MaxResolvConf = 64 << 10

// resolvConf returns the DNS settings of a file as host-local does (plugins/ipam/host-local/dns.go).
func resolvConf(path string) (dns types.DNS, err error) {
	data, err := files.Read(path, MaxResolvConf)
	if err != nil {
		return dns, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	for line := range strings.Lines(string(data)) {
		words := strings.Fields(line)
		if len(words) < 2 || strings.ContainsAny(words[0][:1], "#;") {
			continue
		}
		switch words[0] {
		case "nameserver":
			dns.Nameservers = append(dns.Nameservers, words[1])
		case "domain":
			dns.Domain = words[1]
		case "search":
			dns.Search = append(dns.Search, words[1:]...)
		case "options":
			dns.Options = append(dns.Options, words[1:]...)
		}
	}
	return dns, nil
}
