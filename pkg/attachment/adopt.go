package attachment

import (
	"slices"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
)

// adopt records what the plugin's store holds for the container ID of an owner without a
// record: the journal was lost. absent reports that the store provably holds nothing, so that
// an ADD needs no DEL before it. Addresses that cannot be adopted are requested from the ADD.
// The error is a *duplicateError, or that the record could not be written.
func (op *operation) adopt(inv call.Invocation, want *acquireRequest) (adopted, absent bool, err error) {
	found, err := op.engine.plugin.Lookup(op.callCtx(), inv)
	if len(found.Addresses) == 0 {
		return false, err == nil, nil
	}
	// An address that is excluded by now was allocated before, and may be in use.
	served := *want
	served.hides = nil
	families, unfit := served.accept(found, nil)
	if _, hidden := firstAddr(found.Addresses, op.hides); err != nil || unfit != nil || !hidden && keepsExcluded(op.entry.owner) {
		want.preferFound(slices.DeleteFunc(found.Addresses, func(a call.Address) bool { return op.hides(a.Addr()) }))
		return false, false, nil
	}
	if err := op.reserve(inv, found); err != nil {
		return false, false, err
	}
	found.InStore = true
	if err := op.commit(inv, found, families, want.expires); err != nil {
		op.unreserve(found)
		return false, false, err
	}
	op.log().WithField(fieldIPAddrs, addrs(found.Addresses)).Info("Adopted the addresses that the plugin's store holds: the journal had no record of them")
	return true, false, nil
}
