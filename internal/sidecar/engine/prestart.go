package engine

import (
	"slices"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// acquireCalls returns the calls of an acquisition: DEL with each old invocation, then ADD.
func (op *operation) acquireCalls(old []call.Invocation, inv call.Invocation) []call.Upcoming {
	var calls []call.Upcoming
	for _, c := range old {
		calls = append(calls, call.Upcoming{Verb: call.VerbDel, Call: op.call(c)})
	}
	return append(calls, call.Upcoming{Verb: call.VerbAdd, Call: op.call(inv)})
}

// releaseCalls returns the calls of a release: DEL with each invocation, newest first.
func (op *operation) releaseCalls() []call.Upcoming {
	var calls []call.Upcoming
	for _, c := range slices.Backward(op.entry.rec.Invocations) {
		calls = append(calls, call.Upcoming{Verb: call.VerbDel, Call: op.call(c)})
	}
	return calls
}

// maxPrestarted bounds the processes that are started early for one operation.
const maxPrestarted = 2

// prestart announces the next calls to the plugin, which may start their processes early: as many
// as can be prestarted and as plugin processes are free. A process does nothing before its
// call, so the journal still comes first. forget ends the announcement.
func (op *operation) prestart(calls []call.Upcoming) (forget func()) {
	if i := slices.IndexFunc(calls, func(c call.Upcoming) bool { return !c.CanPrestart() }); i >= 0 {
		calls = calls[:i] // a second process would be taken from other requests for nothing
	}
	processes := 1 // the one of the operation
	// Background work is limited to its share of the processes.
	if op.slot != nil && len(calls) > processes && op.processes().TryAcquire(1) {
		processes, op.hasSecondProcess = maxPrestarted, true
	}
	done := op.engine.plugin.Prestart(calls[:min(len(calls), processes)]...)
	return func() {
		done()
		op.releaseSecondProcess()
	}
}

// releaseSecondProcess returns the second plugin process, if any: the first of two announced
// calls has ended.
func (op *operation) releaseSecondProcess() {
	if op.hasSecondProcess {
		op.processes().Release(1)
		op.hasSecondProcess = false
	}
}
