package profiletry

import (
	"slices"
	"strings"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// concludeRequests proposes the conventions that the plugin honours in one form, and keeps those of
// the profile of the type that could not be tried.
func (t *trial) concludeRequests(d *draft) {
	all := t.seen.requests
	form := t.form(all)
	var kept []profile.Request
	var why []string
	tried := false
	for _, c := range t.conventions() {
		verdict, text := all.of(c, form)
		why = append(why, string(c)+" "+text)
		tried = tried || verdict != untried
		if verdict == honoured || verdict != ignored && t.keeps(c, form) {
			kept = append(kept, c)
		}
	}
	d.Requests, d.RequestForm = kept, ""
	if len(kept) > 0 {
		d.RequestForm = form
	}
	reasons := d.notTried
	if tried {
		reasons = d.tried
	}
	reasons["requests"], reasons["requestForm"] = strings.Join(why, "; "), "see requests"
}

// keeps reports whether the profile of the type has a convention in a form.
func (t *trial) keeps(c profile.Request, form profile.RequestForm) bool {
	return t.ownProfile() && t.Profile.RequestForm == form && slices.Contains(t.Profile.Requests, c)
}

// conventions returns all conventions, those of the profile in use first and in its order.
func (t *trial) conventions() []profile.Request {
	all := slices.Clone(t.Profile.Requests)
	for _, c := range conventions {
		if !slices.Contains(all, c) {
			all = append(all, c)
		}
	}
	return all
}

// form returns the form in which the most conventions are honoured; among equals that of the
// profile in use, or the bare address.
func (t *trial) form(all requestEvidence) profile.RequestForm {
	count := func(form profile.RequestForm) int {
		n := 0
		for _, c := range conventions {
			if all[c][form].verdict == honoured {
				n++
			}
		}
		return n
	}
	best := t.Profile.RequestForm
	if best == "" {
		best = profile.FormAddress
	}
	for _, form := range forms {
		if count(form) > count(best) {
			best = form
		}
	}
	return best
}

// of returns the verdict on a convention in a form, and all observations of it. A convention that
// is ignored in one form is not accepted in the other just because that was refused.
func (all requestEvidence) of(c profile.Request, form profile.RequestForm) (verdict, string) {
	got := all[c][form]
	var saw []string
	for _, f := range forms {
		other := all[c][f]
		switch other.verdict {
		case honoured:
			saw = append(saw, "is honoured as "+string(f))
		case ignored:
			saw = append(saw, "is not honoured as "+string(f)+": "+other.why)
		case rejected:
			saw = append(saw, "is refused as "+string(f)+": "+other.why)
		default:
			saw = append(saw, "was not tried: "+other.why)
		}
		if other.verdict == ignored && got.verdict != honoured {
			got.verdict = ignored
		}
	}
	return got.verdict, strings.Join(slices.Compact(saw), ", ")
}
