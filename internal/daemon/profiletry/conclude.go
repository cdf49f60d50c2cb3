package profiletry

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// conclude sets the fields of the proposal for which there is evidence.
func (r *run) conclude() {
	r.proposal.Type = r.Type
	r.concludeRepeatedAdd()
	r.concludeUnique()
	r.concludeDepends()
	r.concludeCheck()
	r.concludeDel()
	r.concludeDanger()
	r.concludeRequests()
}

// concludeDel sets delNotHeld, for a plugin that refuses the DEL of an ID that holds nothing.
func (r *run) concludeDel() {
	const field = "delNotHeld"
	e := &r.seen
	saw := fmt.Sprintf("DEL of an ID that never had an ADD %s, a second DEL %s", e.delNew.text(), e.delTwice.text())
	r.proposal.DelNotHeld = profile.Lost{}
	if isOwnRefusal(e.delNew) && isOwnRefusal(e.delTwice) {
		known := call.Invocation{Profile: r.Profile}
		described, err := r.Profile.DelNotHeld, error(nil)
		if !call.IsNotHeld(known, e.delNew.err) || !call.IsNotHeld(known, e.delTwice.err) {
			described, err = r.describe(e.delNew, e.delTwice)
		}
		if err != nil {
			saw += "; " + err.Error()
		} else {
			r.proposal.DelNotHeld = described
		}
	}
	r.tried[field] = saw
}

// concludeDanger looks whether the DEL of an ID has freed the address of another one.
func (r *run) concludeDanger() {
	const field = "dangers"
	e := &r.seen
	saw := "after the DEL of the second ID a third ADD " + e.third.text() + ", while the first ID had " + strings.Join(prefixes(e.first.result), ", ")
	if !e.third.succeeded() || !r.proposal.Unique {
		r.notTried[field] = r.withoutADD(saw)
		return
	}
	r.tried[field] = saw + ". Other dangers cannot be tried"
	if taken := shared(e.first.result, e.third.result); len(taken) > 0 {
		r.proposal.Dangers = append(slices.Clone(r.proposal.Dangers), "its DEL frees the address of another container ID, which is then allocated a second time")
	}
}

func (r *run) concludeRepeatedAdd() {
	const field = "repeatedAdd"
	again := r.seen.again
	saw := "a second ADD of one ID " + again.text()
	switch {
	case again.succeeded() && slices.Equal(addrs(again.result), addrs(r.seen.first.result)):
		r.proposal.RepeatedAdd = profile.RepeatedAddSameAnswer
	case again.succeeded():
		r.proposal.RepeatedAdd = profile.RepeatedAddAnotherAddress
		saw += ", the first " + r.seen.first.text()
	case again.refused() && r.seen.second.refused():
		r.notTried[field] = saw + ", but so was the ADD of another ID: the pool may have one free address only"
		return
	case again.refused():
		r.proposal.RepeatedAdd = profile.RepeatedAddRefused
	default:
		r.notTried[field] = r.withoutADD(saw)
		return
	}
	r.tried[field] = saw
}

func (r *run) concludeUnique() {
	const field = "unique"
	first, second := r.seen.first, r.seen.second
	if !second.succeeded() {
		r.notTried[field] = r.withoutADD("an ADD of a second ID " + second.text())
		return
	}
	r.proposal.Unique = len(shared(first.result, second.result)) == 0
	r.tried[field] = fmt.Sprintf("two IDs got %s and %s at the same time", strings.Join(prefixes(first.result), ", "), strings.Join(prefixes(second.result), ", "))
}

// concludeDepends sets dependsOnPod if two IDs got results that differ in more than the address. That they do not proves
// nothing: neither was a real pod.
func (r *run) concludeDepends() {
	const field = "dependsOnPod"
	first, second := r.seen.first, r.seen.second
	switch {
	case !second.succeeded():
		r.notTried[field] = r.withoutADD("an ADD of a second ID " + second.text())
	case !r.proposal.Unique:
		r.proposal.Depends = profile.DependsUnknown
		r.tried[field] = "two IDs got the same address, so none can be acquired ahead"
	case withoutAddresses(first.result) != withoutAddresses(second.result):
		if r.Profile.Depends != profile.DependsOnNamespace {
			r.proposal.Depends = profile.DependsOnIdentity
		}
		r.tried[field] = fmt.Sprintf("two IDs got %s and %s, which differ in more than the address", first.result.Raw, second.result.Raw)
	default:
		r.tried[field] = fmt.Sprintf("the results of two IDs differ in the address alone; %q is right if nothing of a pod chooses its address by the plugin's documentation", profile.DependsOnNothing)
	}
}

// withoutADD adds to an observation why no ADD was run.
func (r *run) withoutADD(saw string) string {
	if r.noAdd == "" {
		return saw
	}
	return saw + ": " + r.noAdd
}

// concludeCheck sets checkProves, lost and verifyBy. CHECK proves something only if it distinguished
// each of the held IDs from each of the others, by an error by which a loss can be recognized.
func (r *run) concludeCheck() {
	e, p := &r.seen, &r.proposal
	if !e.hasCheck {
		for _, field := range []string{"checkProves", "verifyBy", "lost"} {
			r.notTried[field] = "the plugin has no CHECK in the CNI version of its calls, or the network disables it"
		}
		return
	}
	p.CheckProves, p.Lost = profile.ProvesNothing, profile.Lost{}
	r.tried["checkProves"] = fmt.Sprintf("CHECK of a held address %s, of a held ID with another address %s, of an ID that never had an ADD %s, of a released address %s",
		e.checkHeld.text(), e.checkOther.text(), e.checkNew.text(), e.checkDeleted.text())
	if e.checkHeld.succeeded() && isOwnRefusal(e.checkNew) && isOwnRefusal(e.checkDeleted) {
		if lost, saw, err := r.lost(); err != nil {
			r.tried["checkProves"] += "; " + err.Error()
		} else {
			p.Lost, r.tried["lost"] = lost, saw
			p.CheckProves = profile.ProvesPresence
			if e.checkOther.refused() {
				p.CheckProves = profile.ProvesAddress
			}
		}
	}
	r.concludeVerify()
}

// isOwnRefusal reports whether a CHECK was refused with a code of the plugin's own. CNI's codes
// never mean a loss.
func isOwnRefusal(a attempt) bool { return a.refused() && a.err.IsPluginRefusal() }

// lost returns the description of the errors of CHECK for IDs that hold nothing, and the observation:
// the description of the type's own profile if that matches.
func (r *run) lost() (profile.Lost, string, error) {
	e, known := &r.seen, call.Invocation{Profile: r.Profile}
	saw := "CHECK of a released address " + e.checkDeleted.text()
	if r.ownProfile() && call.IsLost(known, e.checkNew.err) && call.IsLost(known, e.checkDeleted.err) {
		return r.Profile.Lost, saw + ", which the profile describes", nil
	}
	lost, err := r.describe(e.checkNew, e.checkDeleted)
	return lost, saw, err
}

// describe returns the description of the errors of two attempts. No ADD, and no CHECK of what is held, has failed with it.
func (r *run) describe(a, b attempt) (profile.Lost, error) {
	unrelated := func(e *call.Error) bool { return e.Verb == call.VerbAdd || e == r.seen.checkHeld.err }
	others := slices.DeleteFunc(slices.Clone(r.errors), func(e *call.Error) bool { return !unrelated(e) })
	return lostOf(a.err, b.err, r.variables(), others)
}

// concludeVerify prefers CHECK. Whether a failed ADD releases held addresses cannot be tried, so
// ADD is not proposed unless the profile in use has it.
func (r *run) concludeVerify() {
	p := &r.proposal
	saw := "CHECK proves " + string(p.CheckProves)
	switch {
	case p.CheckProves != profile.ProvesNothing:
		p.VerifyBy = profile.VerifyCheck
	case p.VerifyBy == profile.VerifyAdd && p.RepeatedAdd == profile.RepeatedAddSameAnswer:
		saw += ", and a repeated ADD returns the same; that a failed ADD releases nothing is taken from the profile"
	default:
		if p.VerifyBy == profile.VerifyAdd {
			saw += ", and a repeated ADD does not return the same"
		} else if p.RepeatedAdd == profile.RepeatedAddSameAnswer {
			saw += `; "add" may be correct if a failed ADD never releases held addresses, which cannot be tried`
		}
		p.VerifyBy = profile.VerifyNothing
	}
	r.tried["verifyBy"] = saw
	if p.VerifyBy != profile.VerifyCheck {
		p.Lost = profile.Lost{}
		r.tried["lost"] = "no CHECK is called, because verifyBy is " + string(p.VerifyBy)
	}
}

// concludeRequests proposes the conventions that the plugin honours in one form, and keeps the
// untried ones of the type's own profile. A convention that is ignored in one form is not
// accepted in the other just because that was refused.
func (r *run) concludeRequests() {
	p, form := &r.proposal, r.form()
	p.Requests, p.RequestForm = nil, ""
	var why []string
	reasons := r.notTried
	own := r.Profile.Requests // these come first, in their order
	others := slices.DeleteFunc(slices.Clone(conventions), func(c profile.Request) bool { return slices.Contains(own, c) })
	for _, convention := range slices.Concat(own, others) {
		got := r.seen.requests[way{convention, form}].verdict
		var saw []string
		for _, f := range forms {
			other := r.seen.requests[way{convention, f}]
			saw = append(saw, other.saw)
			if other.verdict == ignored && got != honoured {
				got = ignored
			}
		}
		why = append(why, string(convention)+" "+strings.Join(slices.Compact(saw), ", "))
		if got != untried {
			reasons = r.tried
		}
		known := r.ownProfile() && r.Profile.RequestForm == form && slices.Contains(r.Profile.Requests, convention)
		if got == honoured || got != ignored && known {
			p.Requests, p.RequestForm = append(p.Requests, convention), form
		}
	}
	reasons["requests"], reasons["requestForm"] = strings.Join(why, "; "), "see requests"
}

// form returns the form in which the most conventions are honoured; among equals the form of the
// profile in use, or the bare address.
func (r *run) form() profile.RequestForm {
	count := map[profile.RequestForm]int{}
	for w, got := range r.seen.requests {
		if got.verdict == honoured {
			count[w.form]++
		}
	}
	best := cmp.Or(r.Profile.RequestForm, profile.FormAddress)
	for _, f := range forms {
		if count[f] > count[best] {
			best = f
		}
	}
	return best
}
