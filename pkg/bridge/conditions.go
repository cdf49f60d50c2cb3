package bridge

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/delegated-ipam/delegated-ipam/pkg/bridge/planner"
)

// recorder creates Kubernetes Events (client-go's record.EventRecorder).
type recorder interface {
	Event(about runtime.Object, kind, reason, message string)
}

// condition is a state that needs attention while it lasts.
type condition struct {
	// subject is what the condition is about; a change of it is a new condition.
	subject string
	message string
}

// conditions reports the start of each condition once, as an Event on the node and in the log, and its
// end in the log.
type conditions struct {
	log      logrus.FieldLogger
	recorder recorder
	node     *corev1.ObjectReference
	// active are the subjects of the present conditions.
	active map[planner.Reason]string
}

func newConditions(log logrus.FieldLogger, r recorder, node *corev1.ObjectReference) *conditions {
	return &conditions{log: log, recorder: r, node: node, active: map[planner.Reason]string{}}
}

// replace sets the conditions that an observation shows and clears those that it does not. Errors
// stay: an observation may succeed while the writes after it fail.
func (c *conditions) replace(current map[planner.Reason]condition) {
	c.clear(func(reason planner.Reason) bool {
		_, present := current[reason]
		return !present && !isErrorReason(reason)
	})
	for _, reason := range slices.Sorted(maps.Keys(current)) {
		c.set(reason, current[reason])
	}
}

// clearErrors clears the conditions of errors, after a reconciliation that left nothing to do.
func (c *conditions) clearErrors() { c.clear(isErrorReason) }

func (c *conditions) clear(matches func(planner.Reason) bool) {
	for _, reason := range slices.Sorted(maps.Keys(c.active)) {
		if matches(reason) {
			c.log.WithField("reason", reason).Info("Condition cleared")
			delete(c.active, reason)
		}
	}
}

// setError sets the condition of an error, and leaves the others as they are.
func (c *conditions) setError(err error) {
	var e *reconcileError
	if errors.As(err, &e) {
		c.set(e.reason, condition{message: e.err.Error()})
		return
	}
	c.log.WithError(err).Warn("Reconciliation failed")
}

func (c *conditions) set(reason planner.Reason, to condition) {
	log := c.log.WithField("reason", reason)
	if subject, active := c.active[reason]; active && subject == to.subject {
		log.Debug(to.message)
		return
	}
	c.active[reason] = to.subject
	log.Warn(to.message)
	c.recorder.Event(c.node, corev1.EventTypeWarning, string(reason), to.message)
}

// conditions returns the conditions of what was observed.
func (s snapshot) conditions(st *state) map[planner.Reason]condition {
	subjects := map[planner.Reason][]string{}
	if len(s.malformed) > 0 {
		subjects[reasonMalformedEntry] = s.malformed
	}
	for _, a := range s.plan {
		for _, ip := range a.IPs {
			if a.Kind == planner.Report {
				subjects[a.Reason] = append(subjects[a.Reason], ip.String())
			}
		}
	}
	current := map[planner.Reason]condition{}
	for reason, about := range subjects {
		slices.Sort(about)
		about = slices.Compact(about)
		current[reason] = condition{subject: strings.Join(about, ","), message: describe(reason, about)}
	}
	if st.acquireBackoff != nil {
		current[reasonPoolExhausted] = condition{message: st.acquireBackoff.cause.Error()}
	}
	return current
}

// maxNamed limits the addresses that one message names: that of an Event has at most 1024 bytes.
const maxNamed = 8

func describe(reason planner.Reason, subjects []string) string {
	count := len(subjects)
	names := strings.Join(subjects[:min(count, maxNamed)], ", ")
	if count > maxNamed {
		names += ", …"
	}
	switch reason {
	case planner.ForeignEntry:
		return fmt.Sprintf("spec.ipam.pool has %d entries that the bridge did not write, and leaves alone: %s", count, names)
	case planner.AddressNotHeld:
		return fmt.Sprintf("%d used addresses are not held by the sidecar and could not be restored: %s. One that is in spec.ipam.pool stays there while it is used; "+
			"one that is not is not published, and the agent drops its endpoint when it restarts. "+
			"The plugin may allocate them to another client: recreate their pods", count, names)
	default:
		return fmt.Sprintf("spec.ipam.pool has %d keys that are not addresses as cilium-agent spells them; they are left alone: %s", count, names)
	}
}
