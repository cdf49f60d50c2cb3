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

// recorder makes Kubernetes Events (client-go's record.EventRecorder).
type recorder interface {
	Event(about runtime.Object, kind, reason, message string)
}

// notice is something that a person should know as long as it lasts.
type notice struct {
	// subject is what it is about; another one is told of anew.
	subject string
	text    string
}

// notices tells each notice once, as an Event on the node and in the log, and
// its end in the log.
type notices struct {
	log      logrus.FieldLogger
	recorder recorder
	node     *corev1.ObjectReference
	lasting  map[planner.Reason]string
}

func newNotices(log logrus.FieldLogger, r recorder, node *corev1.ObjectReference) *notices {
	return &notices{log: log, recorder: r, node: node, lasting: map[planner.Reason]string{}}
}

// now takes all that is so at this moment, as a look at everything shows it. A
// failure may last all the same: the look succeeds, and the write after it does not.
func (n *notices) now(current map[planner.Reason]notice) {
	n.end(func(reason planner.Reason) bool {
		_, lasts := current[reason]
		return !lasts && !fails(reason)
	})
	for _, reason := range slices.Sorted(maps.Keys(current)) {
		n.tell(reason, current[reason])
	}
}

// recovered ends the failures: all that was to be done has been done.
func (n *notices) recovered() { n.end(fails) }

// end tells in the log that what lasted is over.
func (n *notices) end(over func(planner.Reason) bool) {
	for _, reason := range slices.Sorted(maps.Keys(n.lasting)) {
		if over(reason) {
			n.log.WithField("reason", reason).Info("over")
			delete(n.lasting, reason)
		}
	}
}

// also takes an error that kept the bridge from seeing whether the others last.
func (n *notices) also(err error) {
	var t *trouble
	if errors.As(err, &t) {
		n.tell(t.reason, notice{text: t.err.Error()})
		return
	}
	n.log.WithError(err).Warn("failed")
}

func (n *notices) tell(reason planner.Reason, what notice) {
	log := n.log.WithField("reason", reason)
	if subject, lasts := n.lasting[reason]; lasts && subject == what.subject {
		log.Debug(what.text)
		return
	}
	n.lasting[reason] = what.subject
	log.Warn(what.text)
	n.recorder.Event(n.node, corev1.EventTypeWarning, string(reason), what.text)
}

// notices are what a person should know of what was seen.
func (s sight) notices(m *memory) map[planner.Reason]notice {
	about := map[planner.Reason][]string{}
	if len(s.malformed) > 0 {
		about[malformedEntry] = s.malformed
	}
	for _, a := range s.plan {
		for _, ip := range a.IPs {
			if a.Kind == planner.Report {
				about[a.Reason] = append(about[a.Reason], ip.String())
			}
		}
	}
	current := map[planner.Reason]notice{}
	for reason, subjects := range about {
		slices.Sort(subjects)
		subjects = slices.Compact(subjects)
		current[reason] = notice{subject: strings.Join(subjects, ","), text: describe(reason, subjects)}
	}
	if m.exhausted != nil {
		current[poolExhausted] = notice{text: m.exhausted.because.Error()}
	}
	return current
}

// maxNamed is how many addresses one notice names: the message of an Event has
// at most 1024 bytes.
const maxNamed = 8

func describe(reason planner.Reason, subjects []string) string {
	count := len(subjects)
	names := strings.Join(subjects[:min(count, maxNamed)], ", ")
	if count > maxNamed {
		names += ", …"
	}
	switch reason {
	case planner.Foreign:
		return fmt.Sprintf("spec.ipam.pool has %d entries that the bridge did not write, and leaves alone: %s", count, names)
	case planner.Unheld:
		return fmt.Sprintf("%d addresses are in use and the sidecar does not hold them, nor gets them back: %s. One that is in spec.ipam.pool stays there as long as it is used; "+
			"one that is not is left out, and the agent drops its endpoint when it starts again. "+
			"The plugin may give them to somebody else: recreate what has them", count, names)
	default:
		return fmt.Sprintf("spec.ipam.pool has %d keys that are no addresses as cilium-agent spells them; they are left alone: %s", count, names)
	}
}
