package engine

import (
	"errors"
	"slices"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

// adopt records what the plugin's store holds for the container ID of an owner without a record: the
// journal was lost. Every enabled family is claimed for good, also one that is not requested: the owner
// may use it. If none is enabled, all are claimed, so that they can be released. absent reports that
// the store provably holds nothing, so that an ADD needs no DEL before it. Addresses that cannot be
// adopted are requested from the ADD; if another attachment has one, the DEL before it releases ours.
func (op *operation) adopt(inv call.Invocation, t *try) (adopted, absent bool, err error) {
	found, err := op.engine.plugin.Lookup(op.callCtx(), inv)
	if len(found.Addresses) == 0 {
		return false, err == nil, nil
	}
	// An address that is excluded by now was allocated before, and may be in use.
	hidden := slices.ContainsFunc(call.Addrs(found.Addresses), op.excludes)
	excluded := keepsExcluded(op.entry.owner)
	switch {
	case err != nil && len(t.required) > 0 && !excluded:
		return false, false, newError(Failed, "%s holds %v in the plugin's store, outside of its configuration; allocate to replace that: %w", op, call.Addrs(found.Addresses), err)
	case err != nil || excluded && !hidden:
		found := slices.DeleteFunc(found.Addresses, func(a call.Address) bool { return op.excludes(a.Addr()) || op.outside(a.Addr()) })
		t.known, t.want = found, t.preferring(call.Addrs(found))
		return false, false, nil
	}
	var families []record.Family
	if !excluded {
		for _, a := range found.Addresses {
			families = append(families, record.FamilyOf(a.Addr()))
		}
		if slices.ContainsFunc(families, op.engine.enabled) {
			families = slices.DeleteFunc(families, func(f record.Family) bool { return !op.engine.enabled(f) })
		}
	}
	if err := op.reserve(inv, found); err != nil {
		if r, ok := errors.AsType[*rejectedResult](err); ok && r.holder != nil {
			return false, false, nil
		}
		return false, false, err
	}
	found.InStore = true
	if err := op.commit(inv, found, families, false); err != nil {
		op.unreserve(found)
		return false, false, err
	}
	op.log().WithField(fieldIPAddrs, call.Addrs(found.Addresses)).Info("Adopted the addresses that the plugin's store holds: the journal had no record of them")
	return true, false, nil
}
