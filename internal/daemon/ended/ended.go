// Package ended finds the containers that ended without a DEL, and releases their addresses: those whose
// network namespace is missing, and those of pods whose sandbox the container runtime does not know
// (docs/install/pods.md, What releases an address).
package ended

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-openapi/strfmt"
	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/engine"
	"github.com/delegated-ipam/delegated-ipam/internal/files"
)

const (
	// maxInterval limits the time between two sweeps.
	maxInterval = time.Minute
	// minUnknown is how long the runtime must not know a sandbox, at least. It lists one only when
	// RunPodSandbox is done, which the kubelet ends after 4 minutes (twice --runtime-request-timeout).
	minUnknown = 5 * time.Minute
	// MaxReportAge is how long a report of the runtime counts.
	MaxReportAge = 5 * time.Minute
	// maxDirectories limits the directories that ADDs have named. A runtime has one.
	maxDirectories = 64
)

// Engine has the containers.
type Engine interface {
	All() iter.Seq[engine.Attachment]
	ReleaseContainer(ctx context.Context, k attachment.Key, ended func(engine.Attachment) bool) (released bool, err error)
}

// Sweeper finds and releases the containers that ended. Its methods may be called concurrently.
type Sweeper struct {
	engine Engine
	// delay is how long a container has ended before it is released; 0 for never.
	delay time.Duration
	// own is CNI_NETNS of the calls for owners without a namespace.
	own string
	log logrus.FieldLogger
	// mountOf is files.MountOf.
	mountOf func(path string) files.Mount

	mu sync.Mutex
	// shown has for each directory whether the namespace of its last ADD could be seen.
	shown    map[string]bool
	report   report
	suspects map[attachment.Key]suspect
	hidden   []string
}

// report is a list of all sandboxes of the container runtime.
type report struct {
	runtime   string
	received  time.Time
	sandboxes map[string]bool
}

// suspect is a container that seems to have ended.
type suspect struct {
	since time.Time
	// created is that of its record: another one is of a container that was added since.
	created time.Time
	// unknown: the runtime does not know its sandbox. Otherwise its namespace is missing.
	unknown bool
	// confirmed: it has been found twice.
	confirmed bool
}

// is reports whether an attachment is still that of the suspect: not added or used since.
func (c suspect) is(a engine.Attachment) bool {
	return a.Created.Equal(c.created) && !a.LastUsed.After(c.since)
}

// New returns a sweeper with --missing-netns-release-delay and the namespace of owners without one.
func New(e Engine, delay time.Duration, own string, log logrus.FieldLogger) *Sweeper {
	return &Sweeper{engine: e, delay: delay, own: own, log: log, mountOf: files.MountOf, shown: map[string]bool{}}
}

// Run sweeps until ctx ends.
func (s *Sweeper) Run(ctx context.Context) {
	interval := maxInterval
	if s.delay > 0 {
		interval = min(interval, s.delay)
	}
	ticks := time.NewTicker(interval)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticks.C:
			s.sweep(ctx, now)
		}
	}
}

// Adding notes whether the daemon can see the namespace of a container that a runtime adds: it exists now.
func (s *Sweeper) Adding(netns string) {
	if !named(netns, s.own) {
		return
	}
	_, err := os.Lstat(netns)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.shown) >= maxDirectories {
		clear(s.shown)
	}
	s.shown[filepath.Dir(netns)] = err == nil
}

// Report replaces the list of the sandboxes that the container runtime knows. An error refuses it.
func (s *Sweeper) Report(runtime string, sandboxes []string) error {
	if len(sandboxes) == 0 { // the sandbox of the program that reports exists
		return errors.New("the list of sandboxes is empty; expected all sandboxes of the runtime")
	}
	known := make(map[string]bool, len(sandboxes))
	for _, id := range sandboxes {
		known[id] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.report = report{runtime, time.Now(), known}
	return nil
}

// sweep releases what is due at a moment.
func (s *Sweeper) sweep(ctx context.Context, now time.Time) {
	l, began := s.look(now), time.Now()
	found := map[attachment.Key]suspect{}
	for a := range s.engine.All() {
		if ended, unknown := l.ended(a.Record); ended {
			k := attachment.Key{Pool: a.Pool, Owner: a.Owner}
			found[k] = suspect{now, a.Created, unknown, false}
			if before, ok := l.suspects[k]; ok && before.is(a) {
				found[k] = suspect{before.since, a.Created, unknown, true}
			}
		}
	}
	for k, c := range found {
		if !s.due(c, l, now) {
			continue
		}
		log := s.log.WithFields(logrus.Fields{"owner": k.Owner, "poolName": k.Pool})
		why := "its network namespace is missing"
		if c.unknown {
			why = l.report.runtime + " does not know its sandbox"
		}
		still := func(a engine.Attachment) bool {
			ended, unknown := s.look(now.Add(time.Since(began))).ended(a.Record)
			return ended && unknown == c.unknown && c.is(a)
		}
		released, err := s.engine.ReleaseContainer(ctx, k, still)
		if err != nil {
			log.WithError(err).Warnf("Failed to release a container that ended without a DEL (%s); it is repeated", why)
			continue
		}
		delete(found, k)
		if released {
			log.Infof("Released a container that ended without a DEL: %s", why)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.suspects, s.hidden = found, nil
	if s.delay > 0 {
		s.hidden = l.hiddenDirectories()
	}
}

// due reports whether a container is released now. The time without its sandbox is that between two reports:
// they may have ended while the sandbox started.
func (s *Sweeper) due(c suspect, l *look, now time.Time) bool {
	return s.delay > 0 && now.Sub(c.since) >= s.delay && (!c.unknown || l.report.received.Sub(c.since) >= minUnknown)
}

// Status returns what is known of the containers that ended without a DEL.
func (s *Sweeper) Status() *models.EndedContainers {
	s.mu.Lock()
	defer s.mu.Unlock()
	status := &models.EndedContainers{
		DelaySeconds: int64(math.Ceil(s.delay.Seconds())), HiddenDirectories: slices.Clone(s.hidden),
		Runtime: s.report.runtime, Sandboxes: int64(len(s.report.sandboxes)),
	}
	if !s.report.received.IsZero() {
		status.Reported = new(strfmt.DateTime(s.report.received))
	}
	for _, c := range s.suspects {
		if !c.confirmed { // its DEL may be in progress
			continue
		}
		status.Pending++
		if status.Oldest == nil || c.since.Before(time.Time(*status.Oldest)) {
			status.Oldest = new(strfmt.DateTime(c.since))
		}
	}
	return status
}

// named reports whether a runtime has named a network namespace: not one of a process, which has a new path
// in each container, nor own.
func named(netns, own string) bool {
	return netns != "" && netns != own && !strings.HasPrefix(netns, "/proc/")
}

// netNS returns the recorded network namespace of a container interface; empty if it is not known.
func netNS(r attachment.Record, own string) string {
	if !attachment.OfContainer(r.Owner) || len(r.Invocations) == 0 {
		return ""
	}
	if path := r.Container().NetNS; named(path, own) {
		return path
	}
	return ""
}

// missing reports whether a path does not exist.
func missing(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}
