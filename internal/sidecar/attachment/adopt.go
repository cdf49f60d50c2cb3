package attachment

import (
	"errors"
	"slices"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// adopt records what the plugin's store holds for the container ID of an owner without a record: the
// journal was lost. Every enabled family is claimed for good, also one that is not requested: the owner
// may use it. If none is enabled, all are claimed, so that they can be released. absent reports that
// the store provably holds nothing, so that an ADD needs no DEL before it. Addresses that cannot be
// adopted are requested from the ADD; if another attachment has one, the DEL before it releases ours.
func (op *Operation) adopt(inv call.Invocation, t *try) (adopted, absent bool, err error) {
	found, err := op.World.Lookup(inv)
	if len(found.Addresses) == 0 {
		return false, err == nil, nil
	}
	switch { // an address that is excluded by now was allocated before, and may be in use
	case err != nil && len(t.Required) > 0:
		return false, false, newError(Failed, "%s holds %v in the plugin's store, outside of its configuration; allocate to replace that: %w", op, call.Addrs(found.Addresses), err)
	case err != nil:
		found := slices.DeleteFunc(found.Addresses, func(a call.Address) bool { return op.excludes(a.Addr()) || op.outside(a.Addr()) })
		t.known, t.Want = found, t.preferring(call.Addrs(found))
		return false, false, nil
	}
	var families []Family
	for _, a := range found.Addresses {
		families = append(families, FamilyOf(a.Addr()))
	}
	if slices.ContainsFunc(families, op.Opts.Enabled) {
		families = slices.DeleteFunc(families, func(f Family) bool { return !op.Opts.Enabled(f) })
	}
	if err := op.reserve(inv, found); err != nil {
		if r, ok := errors.AsType[*rejectedResult](err); ok && r.holder != nil {
			return false, false, nil
		}
		return false, false, err
	}
	found.InStore = true
	if err := op.commit(inv, found, families, false); err != nil {
		op.World.Unreserve(call.Addrs(found.Addresses))
		return false, false, err
	}
	op.World.Note(Note{Kind: NoteAdopted})
	return true, false, nil
}
