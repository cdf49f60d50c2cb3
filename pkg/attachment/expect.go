package attachment

import (
	"slices"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
)

// This file tells the plugin what it will be asked next. It may start its processes
// meanwhile; none does anything before it is called, so the protocol stays what it is:
// the journal first.

// mostStandby is how many processes may stand by for an operation.
const mostStandby = 2

// expect lets the plugin make ready for calls, as many as can stand by and there are
// slots for now. forget ends that.
func (o *op) expect(calls []call.Upcoming) (forget func()) {
	if i := slices.IndexFunc(calls, func(c call.Upcoming) bool { return !c.CanPrestart() }); i >= 0 {
		calls = calls[:i] // a slot for it would be another's, taken for nothing
	}
	slots := 1 // the operation's own
	// Background work keeps to its share.
	if o.place != nil && len(calls) > slots && o.slots.TryAcquire(1) {
		slots, o.second = mostStandby, true
	}
	done := o.plugin.Prestart(calls[:min(len(calls), slots)]...)
	return func() {
		done()
		o.calledOnce()
	}
}

// calledOnce gives the second slot back, if there is one: the first of the two calls
// that were expected is over.
func (o *op) calledOnce() {
	if o.second {
		o.slots.Release(1)
		o.second = false
	}
}

// toClear is what an acquisition asks: DEL with each old context, then ADD.
func (o *op) toClear(old []call.Invocation, today call.Invocation) []call.Upcoming {
	var calls []call.Upcoming
	for _, c := range old {
		calls = append(calls, call.Upcoming{Verb: call.VerbDel, Call: o.call(c)})
	}
	return append(calls, call.Upcoming{Verb: call.VerbAdd, Call: o.call(today)})
}

// toGiveBack is what giving back asks: DEL with each context, newest first.
func (o *op) toGiveBack() []call.Upcoming {
	var calls []call.Upcoming
	for _, c := range slices.Backward(o.rec.Invocations) {
		calls = append(calls, call.Upcoming{Verb: call.VerbDel, Call: o.call(c)})
	}
	return calls
}
