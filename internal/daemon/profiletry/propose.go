package profiletry

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// untriable has, for each field that no step can determine, the reason. A test compares it with the
// fields of a profile.
var untriable = map[string]string{
	"type":               "it names the plugin",
	"keyedBy":            "a second interface and a second pod would be needed",
	"addOutlivesSeconds": "an ADD would have to be killed in the middle",
	"del":                "the effect of a DEL is in the plugin's store, whose format is unknown",
	"store":              "the place of its allocations is not in the plugin's results",
	"lookup":             "the format of the plugin's store is unknown",
	"podIdentity":        "whether it is harmful to name a pod, or none, depends on the other users of the plugin",
	"namespace":          "every call has the same CNI_NETNS",
	"stateDirKey":        "the plugin's own files are not in its results",
	"defaultStateDir":    "the plugin's own files are not in its results",
	"networkName":        "the network has one name",
	"statusProves":       "the backend would have to be stopped",
	"delFromAnyNode":     "a second node would be needed",
	"perNodeKey":         "a second node would be needed",
	"networkNameUnless":  "the network has one name",
	"delGivesUpSeconds":  "the backend would have to be stopped",
	"releaseFromAddress": "the server's leases are not in the plugin's results",
	"requires":           "the files that the plugin reads are not in its results",
	"tryUnsafe":          "it concerns this command",
	"sources":            "for readers",
}

// propose makes the proposal of the report from the evidence. The error is that some fact could not
// be tried because of an ADD with an unknown outcome.
func (r *run) propose() error {
	r.conclude()
	if !r.ownProfile() {
		r.proposal.Sources = []string{fmt.Sprintf("tried with delegated-ipam profile try, CNI version %s; the other fields are taken from the profile %q", r.report.CNIVersion, r.Profile.Type)}
	}
	proposal, err := parsed(r.proposal)
	if err != nil {
		return fmt.Errorf("the proposal for %s is not a valid profile: %w; please report this with the steps", r.Type, err)
	}
	used, err := parsed(r.Profile)
	if err != nil {
		return fmt.Errorf("the profile in use: %w", err)
	}
	r.report.Proposal = &proposal
	r.explain(used)
	r.addNotes()
	if r.noAdd != "" {
		return errors.New("the proposal is incomplete: " + r.noAdd + "; fields marked so are taken from the profile " + r.Profile.Type)
	}
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

// explain adds the fields of the proposal, and its differences from the profile in use, to the report.
func (r *run) explain(used profile.Profile) {
	got, before := reflect.ValueOf(*r.report.Proposal), reflect.ValueOf(used)
	for field := range got.Type().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		fact := Fact{Field: name, Value: jsonOf(got.FieldByIndex(field.Index)), From: FromProfile}
		if saw, ok := r.tried[name]; ok {
			fact.From, fact.Reason = FromStep, saw
		} else if why, ok := r.notTried[name]; ok {
			fact.Reason = "not tried: " + why
		} else {
			fact.Reason = "cannot be tried: " + untriable[name]
		}
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
	r.note(!r.ownProfile(), "%s has no profile: the calls, and the fields that cannot be tried, are those of the careful one, %q", r.Type, r.Profile.Type)
	r.note(!r.ownProfile() && p.PodIdentity == profile.PodIdentitySynthetic,
		"podIdentity is %q, because a plugin that needs a pod might release nothing without one. Danger: a controller that frees the addresses of pods that do not exist, as that of whereabouts does, frees held ones; set %q if the plugin needs no pod, or else name such a controller in dangers",
		p.PodIdentity, profile.PodIdentityNone)
	r.note((e.delNew.refused() || e.delTwice.refused()) && p.DelNotHeld.Message == "",
		"DEL of an ID that never had an ADD %s, a second DEL %s, and no text says that nothing is held (delNotHeld): the daemon repeats a DEL until it succeeds, so one whose ADD failed could never be released", e.delNew.text(), e.delTwice.text())
	r.note(e.again.refused() && p.CheckProves != profile.ProvesNothing && !e.checkAgain.succeeded(),
		"after the refused ADD, CHECK of the held address %s: a refused ADD may release the addresses of its ID", e.checkAgain.text())
	r.note(!p.Unique && e.second.succeeded() && p.CheckProves == profile.ProvesNothing,
		"two IDs got the same address, and CHECK succeeds for any ID: if the plugin keeps nothing by design, nothing can be lost, and any verifyBy is correct")
	r.note(p.SingleUseIDs(), "by the profile a successful DEL is executed later; until then the plugin may still hold the addresses")
	r.note(p.Danger() != "", "the profile has dangers: if by one of them a DEL may report success without having released, search the plugin's store for %s", r.IDPrefix)
}
