package profiletry

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// ProfileFor returns the profile with which a plugin type is tried. A type without a profile gets a
// pod: a plugin that needs one would release nothing without it.
func ProfileFor(set profile.Set, pluginType string) profile.Profile {
	p := set.For(pluginType)
	if p.Type != pluginType {
		p.PodIdentity = profile.PodIdentitySynthetic
	}
	return p
}

// draft is a proposal in the making. It begins as a copy of the profile in use.
type draft struct {
	profile.Profile
	// tried has the observation for each field (its JSON name) that the trial has determined;
	// notTried has the reason for each field that this trial could not determine.
	tried, notTried map[string]string
}

// conclude returns the profile that the evidence supports.
func (t *trial) conclude() draft {
	d := draft{Profile: t.Profile, tried: map[string]string{}, notTried: map[string]string{}}
	d.Type = t.Type
	t.concludeRepeatedAdd(&d)
	t.concludeUnique(&d)
	t.concludeCheck(&d)
	t.concludeRequests(&d)
	return d
}

func (t *trial) concludeRepeatedAdd(d *draft) {
	const field = "repeatedAdd"
	again := t.seen.again
	saw := "a second ADD of one ID " + again.text()
	switch {
	case again.succeeded() && slices.Equal(addrs(again.result), addrs(t.seen.first.result)):
		d.RepeatedAdd = profile.RepeatedAddSameAnswer
	case again.succeeded():
		d.RepeatedAdd = profile.RepeatedAddAnotherAddress
		saw += ", the first " + t.seen.first.text()
	case again.refused() && t.seen.second.refused():
		d.notTried[field] = saw + ", but so was the ADD of another ID: the pool may have one free address only"
		return
	case again.refused():
		d.RepeatedAdd = profile.RepeatedAddRefused
	default:
		d.notTried[field] = t.withoutADD(saw)
		return
	}
	d.tried[field] = saw
}

func (t *trial) concludeUnique(d *draft) {
	const field = "unique"
	if !t.seen.second.succeeded() {
		d.notTried[field] = t.withoutADD("an ADD of a second ID " + t.seen.second.text())
		return
	}
	both := shared(t.seen.first.result, t.seen.second.result)
	d.Unique = len(both) == 0
	d.tried[field] = fmt.Sprintf("two IDs got %s and %s at the same time", join(prefixes(t.seen.first.result)), join(prefixes(t.seen.second.result)))
}

// withoutADD adds to an observation why no ADD was run.
func (t *trial) withoutADD(saw string) string {
	if t.noAdd == "" {
		return saw
	}
	return saw + ": " + t.noAdd
}

// concludeCheck sets checkProves, lost and verifyBy. CHECK proves something only if it distinguished
// each of the held IDs from each of the others.
func (t *trial) concludeCheck(d *draft) {
	if !t.seen.hasCheck {
		for _, field := range []string{"checkProves", "verifyBy", "lost"} {
			d.notTried[field] = "the plugin has no CHECK in the CNI version of its calls, or the network disables it"
		}
		return
	}
	e := &t.seen
	d.CheckProves, d.Lost = profile.ProvesNothing, profile.Lost{}
	switch {
	case e.checkHeld.succeeded() && isOwnRefusal(e.checkNew) && isOwnRefusal(e.checkDeleted):
		t.concludeLost(d)
	default:
		d.tried["checkProves"] = t.checks()
	}
	t.concludeVerify(d)
}

// isOwnRefusal reports whether a CHECK was refused with a code of the plugin's own. CNI's codes
// never mean a loss.
func isOwnRefusal(a attempt) bool { return a.refused() && a.err.IsPluginRefusal() }

// concludeLost is for a CHECK that distinguishes held IDs from others.
func (t *trial) concludeLost(d *draft) {
	e := t.seen
	saw := "CHECK of a released address " + e.checkDeleted.text()
	if t.ownProfile() && t.knownLost(e.checkNew) && t.knownLost(e.checkDeleted) {
		d.Lost = t.Profile.Lost
		d.tried["lost"] = saw + ", which the profile describes"
	} else {
		lost, err := lostOf(e.checkNew.err, e.checkDeleted.err, t.variables())
		if err != nil {
			d.tried["checkProves"] = t.checks() + "; " + err.Error()
			return
		}
		d.Lost = lost
		d.tried["lost"] = saw
	}
	d.CheckProves = profile.ProvesPresence
	if e.checkOther.refused() {
		d.CheckProves = profile.ProvesAddress
	}
	d.tried["checkProves"] = t.checks()
}

// checks returns what each CHECK returned.
func (t *trial) checks() string {
	e := t.seen
	return fmt.Sprintf("CHECK of a held address %s, of a held ID with another address %s, of an ID that never had an ADD %s, of a released address %s",
		e.checkHeld.text(), e.checkOther.text(), e.checkNew.text(), e.checkDeleted.text())
}

// knownLost reports whether the profile in use describes the error of a CHECK.
func (t *trial) knownLost(a attempt) bool {
	return call.IsLost(call.Invocation{Profile: t.Profile}, a.err)
}

// variables are the parts of an error that differ between calls.
func (t *trial) variables() []string {
	all := []string{t.Network.Name}
	var config struct{ IPAM any }
	if len(t.scratches) > 0 && json.Unmarshal(t.scratches[0].call.Invocation.Config, &config) == nil {
		all = append(all, texts(config.IPAM)...) // such as the name of the plugin's pool
	}
	for _, s := range t.scratches {
		all = append(all, s.call.ContainerID, s.call.Invocation.IfName, s.call.Invocation.NetNS)
	}
	for _, r := range []call.Result{t.seen.first.result, t.seen.second.result, t.seen.again.result} {
		all = append(all, prefixes(r)...)
		for _, ip := range addrs(r) {
			all = append(all, ip.String())
		}
	}
	return all
}

// texts returns the texts in a JSON value, without its keys.
func texts(value any) (all []string) {
	switch v := value.(type) {
	case string:
		all = []string{v}
	case []any:
		for _, e := range v {
			all = append(all, texts(e)...)
		}
	case map[string]any:
		for _, e := range v {
			all = append(all, texts(e)...)
		}
	}
	return all
}

// concludeVerify prefers CHECK. Whether a failed ADD releases held addresses cannot be tried, so
// ADD is not proposed unless the profile in use has it.
func (t *trial) concludeVerify(d *draft) {
	const field = "verifyBy"
	saw := "CHECK proves " + string(d.CheckProves)
	switch {
	case d.CheckProves != profile.ProvesNothing:
		d.VerifyBy = profile.VerifyCheck
	case d.VerifyBy == profile.VerifyAdd && d.RepeatedAdd == profile.RepeatedAddSameAnswer:
		saw += ", and a repeated ADD returns the same; that a failed ADD releases nothing is taken from the profile"
	default:
		if d.VerifyBy == profile.VerifyAdd {
			saw += ", and a repeated ADD does not return the same"
		} else if d.RepeatedAdd == profile.RepeatedAddSameAnswer {
			saw += `; "add" may be correct if a failed ADD never releases held addresses, which cannot be tried`
		}
		d.VerifyBy = profile.VerifyNothing
	}
	d.tried[field] = saw
	if d.VerifyBy != profile.VerifyCheck {
		d.Lost = profile.Lost{}
		d.tried["lost"] = "no CHECK is called, because verifyBy is " + string(d.VerifyBy)
	}
}
