package profiletry

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// propose makes the proposal of the report from the evidence.
func (r *run) propose() error {
	r.proposal.Type = r.Network.IPAMType
	r.concludeAdd()
	r.concludeCheck()
	r.concludeDel()
	r.concludeRequests()
	if !r.ownProfile() {
		r.proposal.Sources = []string{fmt.Sprintf("tried with delegated-ipam profile try, CNI version %s; the other fields are taken from the profile %q", r.report.CNIVersion, r.Profile.Type)}
	}
	proposal, err := parsed(r.proposal)
	if err != nil {
		return fmt.Errorf("the proposal for %s is not a valid profile: %w; please report this with the steps", r.Network.IPAMType, err)
	}
	used, err := parsed(r.Profile)
	if err != nil {
		return fmt.Errorf("the profile in use: %w", err)
	}
	r.report.Proposal = &proposal
	r.explain(used)
	r.addNotes()
	return nil
}

// parsed returns a profile as it is read from a file of --plugin-profile.
func parsed(p profile.Profile) (profile.Profile, error) {
	data, err := json.Marshal(p)
	if err != nil {
		return profile.Profile{}, err
	}
	return profile.Parse(data)
}

// fact notes the observation for a field (its JSON name), and whether it has determined the field.
func (r *run) fact(field string, determined bool, format string, args ...any) {
	f := Fact{From: FromStep, Reason: fmt.Sprintf(format, args...)}
	if !determined {
		f.From = FromProfile
	}
	r.facts[field] = f
}

// concludeAdd sets what the results of ADD show.
func (r *run) concludeAdd() {
	e, p := &r.seen, &r.proposal
	same := slices.Equal(addrs(e.again.result), addrs(e.first.result))
	// A pool with one free address refuses both.
	refused := e.again.refused() && !e.second.refused()
	switch {
	case e.again.succeeded() && same:
		p.RepeatedAdd = profile.RepeatedAddSameAnswer
	case e.again.succeeded():
		p.RepeatedAdd = profile.RepeatedAddAnotherAddress
	case refused:
		p.RepeatedAdd = profile.RepeatedAddRefused
	}
	r.fact("repeatedAdd", refused || e.again.succeeded(), "the ADD of an ID %s, a second one of it %s, that of another ID %s", e.first, e.again, e.second)

	two := e.second.succeeded()
	if two {
		p.Unique = !overlap(e.first.result, e.second.result)
	}
	r.fact("unique", two, "an ADD %s, that of a second ID meanwhile %s", e.first, e.second)

	// That two results do not differ proves nothing: neither was of a real pod.
	differ := withoutAddresses(e.first.result) != withoutAddresses(e.second.result)
	switch {
	case two && !p.Unique:
		p.Depends = profile.DependsUnknown // none can be acquired ahead
	case two && differ && p.Depends != profile.DependsOnNamespace:
		p.Depends = profile.DependsOnIdentity
	}
	r.fact("dependsOnPod", two, "the results of two IDs differ in more than the address: %t (%s and %s); %q is right if nothing of a pod chooses its address by the plugin's documentation",
		differ, e.first.result.Raw, e.second.result.Raw, profile.DependsOnNothing)

	third := e.third.succeeded() && p.Unique
	if third && overlap(e.first.result, e.third.result) {
		p.Dangers = append(slices.Clone(p.Dangers), "its DEL frees the address of another container ID, which is then allocated a second time")
	}
	r.fact("dangers", third, "an ADD %s; while that was held, an ADD after the DEL of a second ID %s. Other dangers cannot be tried", e.first, e.third)
}

// isOwnRefusal reports whether a CHECK or DEL was refused with a code of the plugin's own. CNI's codes
// never mean a loss.
func isOwnRefusal(a attempt) bool { return a.refused() && a.err.IsPluginRefusal() }

// concludeCheck sets checkProves, lost and verifyBy. CHECK proves something only if it distinguished
// each of the held IDs from each of the others, by an error by which a loss can be recognized.
func (r *run) concludeCheck() {
	e, p := &r.seen, &r.proposal
	saw := fmt.Sprintf("CHECK of a held address %s, of a held ID with another address %s, of an ID that never had an ADD %s, of a released address %s",
		e.checkHeld, e.checkOther, e.checkNew, e.checkDeleted)
	if !e.checkHeld.made {
		for _, field := range []string{"checkProves", "verifyBy", "lost"} {
			r.fact(field, false, "the plugin has no CHECK in the CNI version of its calls, or the network disables it")
		}
		return
	}
	p.CheckProves, p.Lost = profile.ProvesNothing, profile.Lost{}
	if e.checkHeld.succeeded() && isOwnRefusal(e.checkNew) && isOwnRefusal(e.checkDeleted) {
		lost, err := r.description(r.Profile.Lost, call.IsLost, e.checkNew, e.checkDeleted)
		switch {
		case err != nil:
			saw += "; " + err.Error()
		case e.checkOther.refused():
			p.Lost, p.CheckProves = lost, profile.ProvesAddress
		default:
			p.Lost, p.CheckProves = lost, profile.ProvesPresence
		}
	}
	r.fact("checkProves", true, "%s", saw)
	r.concludeVerify()
	r.fact("lost", true, "see checkProves and verifyBy")
}

// description returns a description of two errors for IDs that hold nothing: that of the type's own
// profile if it describes both.
func (r *run) description(known profile.Lost, describes func(call.Invocation, error) bool, a, b attempt) (profile.Lost, error) {
	inv := call.Invocation{Profile: r.Profile}
	if r.ownProfile() && describes(inv, a.err) && describes(inv, b.err) {
		return known, nil
	}
	return r.describe(a.err, b.err)
}

// minText is how many letters the constant part of an error must have to recognize it.
const minText = 8

// describe returns the description of the errors of two attempts for IDs that hold nothing: their codes and the longest
// run of words that both have, without those of the call, of the details if both have some, or else of the message. No
// ADD, and no CHECK of what is held, may have failed with it. Code alone is not enough, because a plugin built with
// CNI's skel package has one code for every error.
func (r *run) describe(a, b *call.Error) (profile.Lost, error) {
	err := errors.New("the two errors have no text in common by which they could be recognized")
	for _, texts := range [][2]string{{a.Details, b.Details}, {a.Msg, b.Msg}} {
		text := r.commonText(texts[0], texts[1])
		isOther := func(e *call.Error) bool {
			return (e.Verb == call.VerbAdd || e == r.seen.checkHeld.err) && strings.Contains(e.Msg+"\n"+e.Details, text)
		}
		if letters := strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) }); len(strings.Join(letters, "")) < minText {
			continue
		}
		if i := slices.IndexFunc(r.errors, isOther); i >= 0 {
			err = fmt.Errorf("another error has the text %q, too: %w", text, r.errors[i])
			continue
		}
		codes := []uint{a.Code, b.Code}
		slices.Sort(codes)
		return profile.Lost{Codes: slices.Compact(codes), Message: text}, nil
	}
	return profile.Lost{}, err
}

// commonText returns the longest run of words that is in both texts, without those that name something of the call.
func (r *run) commonText(a, b string) (longest string) {
	of := r.scratches[0].call
	var names []string
	for _, name := range []string{r.IDPrefix, r.Network.Name, of.IfName, of.NetNS} {
		if name != "" {
			names = append(names, regexp.QuoteMeta(name))
		}
	}
	named := regexp.MustCompile(`(^|\W)(` + strings.Join(names, "|") + `)(\W|$)`)
	words := strings.Split(a, " ")
	for from := range words {
		for to := from + 1; to <= len(words); to++ {
			text := strings.Join(words[from:to], " ")
			if named.MatchString(text) || !strings.Contains(b, text) {
				break
			}
			if len(text) > len(longest) {
				longest = text
			}
		}
	}
	return longest
}

// concludeVerify prefers CHECK. Whether a failed ADD releases held addresses cannot be tried, so
// ADD is not proposed unless the profile in use has it.
func (r *run) concludeVerify() {
	p := &r.proposal
	switch {
	case p.CheckProves != profile.ProvesNothing:
		p.VerifyBy = profile.VerifyCheck
	case p.VerifyBy != profile.VerifyAdd || p.RepeatedAdd != profile.RepeatedAddSameAnswer:
		p.VerifyBy = profile.VerifyNothing
	}
	r.fact("verifyBy", true, `CHECK proves %s, and a repeated ADD is %s; "add" is correct if that is %s and a failed ADD never releases held addresses, which cannot be tried`,
		p.CheckProves, p.RepeatedAdd, profile.RepeatedAddSameAnswer)
}

// concludeDel sets delNotHeld, for a plugin that refuses the DEL of an ID that holds nothing.
func (r *run) concludeDel() {
	e := &r.seen
	saw := fmt.Sprintf("DEL of an ID that never had an ADD %s, a second DEL %s", e.delNew, e.delTwice)
	r.proposal.DelNotHeld = profile.Lost{}
	if isOwnRefusal(e.delNew) && isOwnRefusal(e.delTwice) {
		described, err := r.description(r.Profile.DelNotHeld, call.IsNotHeld, e.delNew, e.delTwice)
		if err != nil {
			saw += "; " + err.Error()
		}
		r.proposal.DelNotHeld = described
	}
	r.fact("delNotHeld", true, "%s", saw)
}

// concludeRequests proposes the conventions that the plugin honours in one form, the one in which it honours the most,
// and keeps the untried ones of the type's own profile. A convention that is ignored in one form is not accepted in
// the other just because that was refused.
func (r *run) concludeRequests() {
	count, tried := map[profile.RequestForm]int{}, false
	var why []string
	for _, q := range r.seen.requests {
		why = append(why, string(q.convention)+" "+q.saw)
		tried = tried || q.verdict != untried
		if q.verdict == honoured {
			count[q.form]++
		}
	}
	form := cmp.Or(r.Profile.RequestForm, profile.FormAddress)
	for _, f := range forms {
		if count[f] > count[form] {
			form = f
		}
	}
	p := &r.proposal
	p.Requests, p.RequestForm = nil, ""
	for _, convention := range conventions {
		honours := func(q requested) bool { return q.convention == convention && q.form == form && q.verdict == honoured }
		ignores := func(q requested) bool { return q.convention == convention && q.verdict == ignored }
		keep := r.ownProfile() && r.Profile.RequestForm == form && slices.Contains(r.Profile.Requests, convention) && !slices.ContainsFunc(r.seen.requests, ignores)
		if keep || slices.ContainsFunc(r.seen.requests, honours) {
			p.Requests, p.RequestForm = append(p.Requests, convention), form
		}
	}
	r.fact("requests", tried, "%s", strings.Join(slices.Compact(why), "; "))
	r.fact("requestForm", tried, "see requests")
}

// explain adds the fields of the proposal, and its differences from the profile in use, to the report.
func (r *run) explain(used profile.Profile) {
	got, before := reflect.ValueOf(*r.report.Proposal), reflect.ValueOf(used)
	for field := range got.Type().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		fact, ok := r.facts[name]
		if !ok {
			fact = Fact{From: FromProfile, Reason: "no step can determine it"}
		}
		fact.Field, fact.Value = name, jsonOf(got.FieldByIndex(field.Index))
		r.report.Facts = append(r.report.Facts, fact)
		if was := jsonOf(before.FieldByIndex(field.Index)); r.ownProfile() && string(was) != string(fact.Value) {
			r.report.Differences = append(r.report.Differences, Difference{Field: name, Profile: was, Proposal: fact.Value, Reason: fact.Reason})
		}
	}
}

func jsonOf(v reflect.Value) json.RawMessage {
	data, _ := json.Marshal(v.Interface()) // a profile has text, numbers and lists only
	return data
}

func (r *run) note(applies bool, format string, args ...any) {
	if applies {
		r.report.Notes = append(r.report.Notes, fmt.Sprintf(format, args...))
	}
}

// addNotes adds the observations without a field to the report.
func (r *run) addNotes() {
	e, p := &r.seen, r.report.Proposal
	r.note(!r.ownProfile(), "%s has no profile: the calls, and the fields that cannot be tried, are those of the careful one, %q", r.Network.IPAMType, r.Profile.Type)
	r.note(!r.ownProfile() && p.PodIdentity == profile.PodIdentitySynthetic,
		"podIdentity is %q, because a plugin that needs a pod might release nothing without one. Danger: a controller that frees the addresses of pods that do not exist, as that of whereabouts does, frees held ones; set %q if the plugin needs no pod, or else name such a controller in dangers",
		p.PodIdentity, profile.PodIdentityNone)
	r.note((e.delNew.refused() || e.delTwice.refused()) && p.DelNotHeld.Message == "",
		"DEL of an ID that never had an ADD %s, a second DEL %s, and no text says that nothing is held (delNotHeld): the daemon repeats a DEL until it succeeds, so one whose ADD failed could never be released", e.delNew, e.delTwice)
	r.note(e.again.refused() && p.CheckProves != profile.ProvesNothing && !e.checkAgain.succeeded(),
		"after the refused ADD, CHECK of the held address %s: a refused ADD may release the addresses of its ID", e.checkAgain)
	r.note(!p.Unique && e.second.succeeded() && p.CheckProves == profile.ProvesNothing,
		"two IDs got the same address, and CHECK succeeds for any ID: if the plugin keeps nothing by design, nothing can be lost, and any verifyBy is correct")
	r.note(p.SingleUseIDs(), "by the profile a successful DEL is executed later; until then the plugin may still hold the addresses")
	r.note(p.Danger() != "", "the profile has dangers: if by one of them a DEL may report success without having released, search the plugin's store for %s", r.IDPrefix)
}
