// Package drain carries out the DELs of container runtimes that delegated-ipam-cni could not deliver: it
// reads them from the spool at the start, when one appears, and before an ADD of the same interface.
package drain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-openapi/strfmt"
	"github.com/sirupsen/logrus"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/dirwatch"
	"github.com/delegated-ipam/delegated-ipam/internal/failpoint"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/spool"
)

const (
	// parallel is how many entries are carried out concurrently, of the slots for plugin processes.
	parallel = 4
	// A failed DEL is repeated after minBackoff, then after twice as long, up to maxBackoff.
	minBackoff = 5 * time.Second
	maxBackoff = 5 * time.Minute
	// addRetryAfter is after what time an ADD is repeated whose interface has a DEL that fails.
	addRetryAfter = 5 * time.Second
	// maxNamed limits the failed DELs that a status names.
	maxNamed = 10
)

// Engine releases container interfaces.
type Engine interface {
	// DelLeft carries out a DEL that was left at an earlier time. It reports false for one that is of a
	// container which the daemon does not know, in a network that it does not serve.
	DelLeft(ctx context.Context, network string, c call.Container, at time.Time) (done bool, err error)
	// ContainerRecord returns the record of a container interface in a network, if there is one.
	ContainerRecord(network, owner string) (attachment.Record, bool)
}

// Drainer carries out the entries of one spool. Its methods may be called concurrently.
type Drainer struct {
	dir    *spool.Dir
	engine Engine
	log    logrus.FieldLogger

	// running are the entries that are being carried out, by name.
	running singleflight.Group

	mu sync.Mutex
	// err is why the spool cannot be used, and quarantined the number of files that were moved aside.
	err         error
	quarantined int
	entries     map[string]*state
}

// state is what is known of the file of a name.
type state struct {
	failures int
	next     time.Time
	entry    spool.Entry
	err      error
}

// New returns a drainer of a spool; nil without one, and why is the error of its status.
func New(dir *spool.Dir, why error, e Engine, log logrus.FieldLogger) *Drainer {
	return &Drainer{dir: dir, engine: e, log: log, entries: map[string]*state{}, err: why}
}

// Status returns the present state. Its error is why the spool cannot be used, and which DELs have failed and why.
func (d *Drainer) Status() *models.SpoolStatus {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := &models.SpoolStatus{Quarantined: int64(d.quarantined)}
	if d.dir != nil {
		s.Directory = d.dir.Path()
	}
	var oldest time.Time
	var failed []string
	for _, name := range slices.Sorted(maps.Keys(d.entries)) {
		e := d.entries[name]
		w := e.entry.Written
		if w.IsZero() && e.err == nil {
			continue // a name without a file
		}
		s.Pending++
		if !w.IsZero() && (oldest.IsZero() || w.Before(oldest)) {
			oldest = w
		}
		if e.err != nil {
			failed = append(failed, fmt.Sprintf("%s (%s): %s", name, e.entry, e.err))
		}
	}
	if !oldest.IsZero() {
		s.Oldest = new(strfmt.DateTime(oldest))
	}
	if more := len(failed) - maxNamed; more > 0 {
		failed = append(failed[:maxNamed], fmt.Sprintf("and %d more", more))
	}
	if d.err != nil {
		failed = slices.Insert(failed, 0, d.err.Error())
	}
	s.Error = strings.Join(failed, "; ")
	return s
}

// Run carries out the entries until ctx ends.
func (d *Drainer) Run(ctx context.Context) error {
	if d.dir == nil {
		return nil
	}
	return dirwatch.New(d.dir.Path(), "spool of DELs", d.log, func() { d.drain(ctx) }).Run(ctx)
}

// Close closes the spool.
func (d *Drainer) Close() error {
	if d.dir == nil {
		return nil
	}
	return d.dir.Close()
}

// drain carries out each entry that is due, and updates the status.
func (d *Drainer) drain(ctx context.Context) {
	err := cmp.Or(d.dir.Check(), d.dir.RemoveTemporary())
	names, listErr := d.dir.List()
	quarantined, countErr := d.dir.Quarantined()
	d.mu.Lock()
	d.err, d.quarantined = cmp.Or(err, errors.Join(listErr, countErr)), quarantined
	if listErr == nil {
		maps.DeleteFunc(d.entries, func(name string, _ *state) bool { return !slices.Contains(names, name) })
	}
	unread := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !d.entry(name).entry.Written.IsZero() })
	d.mu.Unlock()
	// All of them before one is carried out, so that the status has all.
	for _, name := range unread {
		if e, _, err := d.dir.Read(name); err == nil { // carryOut reports an error
			d.mu.Lock()
			d.entry(name).entry = e
			d.mu.Unlock()
		}
	}
	work := errgroup.Group{}
	work.SetLimit(parallel)
	for _, name := range names {
		d.mu.Lock()
		due := !time.Now().Before(d.entry(name).next)
		d.mu.Unlock()
		if due && ctx.Err() == nil {
			work.Go(func() error { return (<-d.carryOut(ctx, name)).Err })
		}
	}
	_ = work.Wait() // the entries have the errors
}

// entry returns the state of a name. d.mu is held.
func (d *Drainer) entry(name string) *state {
	s := d.entries[name]
	if s == nil {
		s = &state{}
		d.entries[name] = s
	}
	return s
}

// BeforeAdd carries out the DEL of a container interface, if there is one, before an ADD of it: later it
// would release the new addresses. An error refuses the ADD.
func (d *Drainer) BeforeAdd(ctx context.Context, network string, a call.Attachment) error {
	if d.dir == nil {
		return nil
	}
	name := spool.Name(network, a.ContainerID, a.IfName)
	for {
		if exists, err := d.dir.Has(name); err == nil && !exists {
			return nil
		}
		// Another one may have been left while the first was carried out.
		var err error
		select {
		case r := <-d.carryOut(ctx, name):
			err = r.Err
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil {
			return &attachment.Error{Kind: attachment.Failed, RetryAfter: addRetryAfter, Err: fmt.Errorf("an earlier DEL of the interface has to succeed first: %w", err)}
		}
	}
}

// carryOut carries out the entry of a name and removes its file, unless another call does so. Without a file it succeeds.
func (d *Drainer) carryOut(ctx context.Context, name string) <-chan singleflight.Result {
	return d.running.DoChan(name, func() (any, error) {
		e, err := d.carryOutOne(ctx, name)
		if err != nil {
			d.entryLog(e).WithError(err).Warn("A DEL that was left while the daemon could not be reached has failed; it is repeated")
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		if err == nil {
			delete(d.entries, name)
			return nil, nil
		}
		s := d.entry(name)
		s.err, s.failures = err, s.failures+1
		s.next = time.Now().Add(min(maxBackoff, minBackoff<<min(s.failures-1, 10)))
		return nil, err
	})
}

// carryOutOne is carryOut for the only caller of a name.
func (d *Drainer) carryOutOne(ctx context.Context, name string) (spool.Entry, error) {
	e, file, err := d.dir.Read(name)
	if errors.Is(err, fs.ErrNotExist) {
		return e, nil
	}
	if err == nil {
		err = valid(e)
	}
	if invalid, ok := errors.AsType[*spool.InvalidError](err); ok {
		return e, d.moveAside(name, invalid)
	}
	if err != nil {
		return e, err
	}
	log := d.entryLog(e)
	if d.superseded(e) {
		log.Info("Dropped a DEL that was left while the daemon could not be reached: its container ID was added again for another sandbox since")
	} else {
		c := call.Container{Attachment: call.Attachment{ContainerID: e.ContainerID, IfName: e.IfName}, Args: e.Args}
		done, err := d.engine.DelLeft(ctx, e.Network, c, e.Written)
		if err != nil {
			return e, err
		}
		if done {
			log.Info("Carried out a DEL that was left while the daemon could not be reached")
		} else {
			log.Warn("Dropped a DEL that was left while the daemon could not be reached: the network is not served for pods any more, and the plugin may have added its container ID again; run the plugin's DEL if the container has ended and still has a lease")
		}
	}
	failpoint.Reach(failpoint.SpoolDone)
	err = d.dir.Remove(name, file)
	failpoint.Reach(failpoint.SpoolRemoved)
	return e, err
}

// moveAside moves a file that is not an entry to quarantine.
func (d *Drainer) moveAside(name string, why *spool.InvalidError) error {
	err := d.dir.MoveAside(name)
	if err == nil {
		d.mu.Lock()
		d.quarantined++
		d.mu.Unlock()
	}
	d.log.WithError(why).WithField("file", name).Error("Moved a file of the spool to quarantine; a DEL in it is not carried out")
	return err
}

func (d *Drainer) entryLog(e spool.Entry) *logrus.Entry {
	return d.log.WithFields(logrus.Fields{
		"network": e.Network, "containerID": e.ContainerID, "owner": attachment.ContainerOwner(e.ContainerID, e.IfName), "written": e.Written,
	})
}

// valid returns an error for values that the API refuses.
func valid(e spool.Entry) error {
	if e.Network == "" || !call.ValidRuntimeID(e.ContainerID) || !call.ValidIfName(e.IfName) {
		return &spool.InvalidError{Reason: "not a container interface"}
	}
	return nil
}

// superseded reports whether the container ID was added again after the DEL, for another sandbox: by
// another path of its network namespace, or another namespace under the same path. Then the DEL was
// carried out before that ADD, or is of a container that the ADD replaced. A pod's sandbox has its ID alone,
// so that a clock which was set back drops none of its DELs.
func (d *Drainer) superseded(e spool.Entry) bool {
	if call.OfSandbox(e.Args, e.ContainerID) {
		return false
	}
	r, ok := d.engine.ContainerRecord(e.Network, attachment.ContainerOwner(e.ContainerID, e.IfName))
	if !ok || len(r.Invocations) == 0 || !r.Created.After(e.Written) {
		return false
	}
	path := r.Container().NetNS
	if path != e.NetNS {
		return true
	}
	info, err := os.Stat(path) // the record's path: nothing of an entry is opened
	if err != nil || e.Inode == 0 {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && (stat.Ino != e.Inode || uint64(stat.Dev) != e.Device)
}
