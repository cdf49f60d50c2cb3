// Package nodeevents reports problems of a Node that need attention: in the log when they begin
// and end, and as a Kubernetes Event when they have lasted. testing/synctest can simulate its time.
package nodeevents

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
)

const (
	// EventDelay is how long a problem lasts before its Event is created. The parts of an
	// installation start in any order, and each waits for the others: a minute is enough to pull their
	// images and to start them, so a problem that lasts longer needs an operator.
	EventDelay = time.Minute
	// checkBefore is how long before its Event a problem should be checked again: the next
	// attempt of a reconciliation may be much later, and the problem may have ended since the
	// last one. It leaves time for the check.
	checkBefore = 5 * time.Second
	// maxMissed is how many failures in a row with other reasons end the problem of a failure. After
	// a single failure it may return: two parts that fail in turns are two problems.
	maxMissed = 2
)

// Recorder creates Kubernetes Events (client-go's record.EventRecorder).
type Recorder interface {
	Event(about runtime.Object, kind, reason, message string)
}

// NewRecorder returns a recorder that writes Events in the background until ctx ends. component is
// the program that they name as their source, and node its node. An Event that cannot be written is
// lost. The error is that config is not valid. It needs the rights to create and to patch Events in
// the namespace "default": client-go counts a repeated Event by a patch.
func NewRecorder(ctx context.Context, config *rest.Config, component, node string) (Recorder, error) {
	client, err := typedcorev1.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.Events("")})
	return broadcaster.NewRecorder(runtime.NewScheme(), corev1.EventSource{Component: component, Host: node}), nil
}

type Problem struct {
	// Subject identifies the affected objects, such as addresses. An Event is created for each
	// subject; a change of the message alone creates none.
	Subject string
	Message string
}

// Problems are the present problems of one Node, by the reasons of their
// Events. Its methods may be called concurrently.
type Problems struct {
	log      logrus.FieldLogger
	recorder Recorder
	node     *corev1.ObjectReference

	mu     sync.Mutex
	active map[string]*active
}

type active struct {
	Problem
	// failure is set by Fail, and ended by Succeed.
	failure bool
	// missed counts the failures since the last attempt that showed the problem: whether it
	// still exists is unknown.
	missed int
	// due is when the Event of the present subject is to be created; zero if it was created.
	due   time.Time
	timer *time.Timer
	// reported is the subject of the last Event, nil for none.
	reported *string
}

// New returns empty problems for the Node of a name.
func New(log logrus.FieldLogger, r Recorder, node string) *Problems {
	return &Problems{
		log: log, recorder: r, active: map[string]*active{},
		// An Event on a node has the node's name as UID, as the kubelet writes it; "kubectl
		// describe node" finds it by that. Without a namespace its own is "default".
		node: &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node, UID: types.UID(node)},
	}
}

// Observe sets the problems that an observation shows, by reason, and ends problems of
// earlier observations that it does not show. The problems of failures stay: an observation may succeed
// while the writes after it fail.
func (c *Problems) Observe(current map[string]Problem) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end(func(reason string, a *active) bool {
		_, present := current[reason]
		return !present && !a.failure
	})
	for _, reason := range slices.Sorted(maps.Keys(current)) {
		c.set(reason, current[reason], false)
	}
}

// Fail sets the problem of a failed attempt. It ends the problem of an earlier failure that the
// last attempts did not show, and postpones the Event of any other problem until an attempt shows
// it again.
func (c *Problems) Fail(reason, message string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.set(reason, Problem{Message: message}, true)
	c.end(func(other string, a *active) bool {
		if other != reason {
			a.missed++
		}
		return a.failure && a.missed >= maxMissed
	})
}

func (c *Problems) Succeed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end(func(_ string, a *active) bool { return a.failure })
}

// NextCheck returns when the caller should check the problems again because an Event is due soon
// after: an attempt then shows whether the problem still exists. It is zero if no Event is due, or
// if it is too late for that.
func (c *Problems) NextCheck() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	var next time.Time
	for _, a := range c.active {
		at := a.due.Add(-checkBefore)
		if !a.due.IsZero() && time.Until(at) > 0 && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}

// String returns reason and message of each problem that the last attempt showed; empty for none.
func (c *Problems) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []string
	for _, reason := range slices.Sorted(maps.Keys(c.active)) {
		if a := c.active[reason]; a.missed == 0 {
			all = append(all, reason+": "+a.Message)
		}
	}
	return strings.Join(all, "; ")
}

// Stop ends all problems without an entry in the log. No Event is created after it.
func (c *Problems) Stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.active {
		a.timer.Stop()
	}
	clear(c.active)
}

func (c *Problems) end(ended func(reason string, a *active) bool) {
	for _, reason := range slices.Sorted(maps.Keys(c.active)) {
		if a := c.active[reason]; ended(reason, a) {
			a.timer.Stop()
			delete(c.active, reason)
			c.log.WithField("reason", reason).Info("Problem ended")
		}
	}
}

func (c *Problems) set(reason string, to Problem, failure bool) {
	log := c.log.WithFields(logrus.Fields{"reason": reason, "problem": to.Message})
	a, exists := c.active[reason]
	if !exists {
		a = &active{}
		a.timer = time.AfterFunc(EventDelay, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.active[reason] == a {
				c.report(reason, a)
			}
		})
		c.active[reason] = a
	}
	changed := !exists || a.Subject != to.Subject
	a.Problem, a.failure, a.missed = to, failure, 0
	if !changed {
		log.Debug("Problem persists")
	} else {
		log.Warn("Problem found")
	}
	switch {
	case a.reported != nil && *a.reported == to.Subject:
		a.due = time.Time{}
	case changed && a.due.IsZero():
		// Otherwise an Event is due, which a change does not postpone: the reason has not ended.
		a.due = time.Now().Add(EventDelay)
		a.timer.Reset(EventDelay)
	}
	c.report(reason, a)
}

// report creates the Event of a problem if it is due and the last attempt has shown the
// problem.
func (c *Problems) report(reason string, a *active) {
	if a.due.IsZero() || time.Now().Before(a.due) || a.missed > 0 {
		return
	}
	subject := a.Subject
	a.due, a.reported = time.Time{}, &subject
	c.recorder.Event(c.node, corev1.EventTypeWarning, reason, a.Message)
}
