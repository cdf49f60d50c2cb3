package engine

import (
	"slices"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// prestart announces the next calls to the plugin, DELs and then ADDs, which may start the processes of
// two early: as many as can be prestarted and as plugin processes are free. A process does nothing
// before its call, so the journal still comes first. forget ends the announcement.
func (op *operation) prestart(dels []call.Invocation, adds ...call.Invocation) (forget func()) {
	var calls []call.Upcoming
	for i, inv := range slices.Concat(dels, adds) {
		next := call.Upcoming{Verb: call.VerbDel, Call: op.call(inv)}
		if i >= len(dels) {
			next.Verb = call.VerbAdd
		}
		if i == 2 || !next.CanPrestart() {
			break // a second process would be taken from other requests for nothing
		}
		calls = append(calls, next)
	}
	// Background work is limited to its share of the processes.
	op.hasSecondProcess = op.client && len(calls) > 1 && op.processes().TryAcquire(1)
	if len(calls) > 1 && !op.hasSecondProcess {
		calls = calls[:1]
	}
	done := op.engine.plugin.Prestart(calls...)
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
