package trial

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/profile"
)

// Origins of a Fact.
const (
	// FromTrial: the trial has found it out.
	FromTrial = "tried"
	// FromProfile: it is taken from the profile in use.
	FromProfile = "profile"
)

// Fact is one field of the proposal.
type Fact struct {
	// Field is its name in the JSON of a profile, and Value its value.
	Field string          `json:"field"`
	Value json.RawMessage `json:"value"`
	// From is FromTrial or FromProfile.
	From string `json:"from"`
	// Reason is what the trial saw, or why the field was not tried.
	Reason string `json:"reason"`
}

// Difference is one field in which the proposal differs from the profile of the type.
type Difference struct {
	// Field is its name in the JSON of a profile.
	Field string `json:"field"`
	// Profile and Proposal are its values.
	Profile  json.RawMessage `json:"profile"`
	Proposal json.RawMessage `json:"proposal"`
	// Reason is what the trial saw.
	Reason string `json:"reason"`
}

// untriable has for each field that no trial can find out why. A test compares it with the fields
// of a profile.
var untriable = map[string]string{
	"type":               "the plugin under trial",
	"addOutlivesSeconds": "an ADD would have to be killed in the middle",
	"delOutlivesSeconds": "a DEL would have to be killed in the middle",
	"del":                "what a DEL has released is in the plugin's store, which has a form of its own",
	"store":              "where the plugin keeps its allocations is not in its answers",
	"lookup":             "the plugin's store has a form of its own",
	"waitsForConfig":     "what the plugin does before it reads its configuration is not in its answers",
	"podIdentity":        "whether it is harmful to name a pod, or none, depends on what else uses the plugin",
	"namespace":          "the trial has one CNI_NETNS",
	"stateDirKey":        "the plugin's own files are not in its answers",
	"defaultStateDir":    "the plugin's own files are not in its answers",
	"networkName":        "the network has one name",
	"statusProves":       "the backend would have to be stopped",
	"nodeLocal":          "a second node would be needed",
	"delFromAnyNode":     "a second node would be needed",
	"delGivesUpSeconds":  "the backend would have to be stopped",
	"requires":           "what the plugin reads is not in its answers",
	"dangers":            "what a backend does later is not in the plugin's answers",
	"tryUnsafe":          "it is about trials",
	"sources":            "for people",
}

// propose makes the proposal of the report from the evidence. The error is that some fact could not
// be tried because of an ADD with an unknown outcome.
func (t *trial) propose() error {
	d := t.conclude()
	if !t.ownProfile() {
		d.Sources = []string{fmt.Sprintf("tried with delegated-ipam profile try, CNI version %s; what that cannot find out is taken from the profile %q", t.report.CNIVersion, t.Profile.Type)}
	}
	proposal, err := parsed(d.Profile)
	if err != nil {
		return fmt.Errorf("the proposal for %s is not a valid profile: %w; please report this with the steps", t.Type, err)
	}
	used, err := parsed(t.Profile)
	if err != nil {
		return fmt.Errorf("the profile in use: %w", err)
	}
	t.report.Proposal = &proposal
	t.explain(d, proposal, used)
	t.addNotes(d)
	if t.noAdd != "" {
		return errors.New("the trial is incomplete: " + t.noAdd + "; fields marked so are taken from the profile " + t.Profile.Type)
	}
	return nil
}

// parsed returns a profile as a file of --plugin-profile with it is read.
func parsed(p profile.Profile) (profile.Profile, error) {
	data, err := json.Marshal(p)
	if err != nil {
		return profile.Profile{}, err
	}
	return profile.Parse(data)
}

// explain adds the fields of the proposal and its differences to the report.
func (t *trial) explain(d draft, proposal, used profile.Profile) {
	got, before := reflect.ValueOf(proposal), reflect.ValueOf(used)
	for field := range got.Type().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		fact := Fact{Field: name, Value: jsonOf(got.FieldByIndex(field.Index)), From: FromProfile}
		if saw, ok := d.tried[name]; ok {
			fact.From, fact.Reason = FromTrial, saw
		} else if why, ok := d.notTried[name]; ok {
			fact.Reason = "not tried: " + why
		} else {
			fact.Reason = "cannot be tried: " + untriable[name]
		}
		t.report.Facts = append(t.report.Facts, fact)
		if was := jsonOf(before.FieldByIndex(field.Index)); t.ownProfile() && string(was) != string(fact.Value) {
			t.report.Differences = append(t.report.Differences, Difference{Field: name, Profile: was, Proposal: fact.Value, Reason: fact.Reason})
		}
	}
}

// jsonOf returns a field of a profile in JSON.
func jsonOf(v reflect.Value) json.RawMessage {
	data, err := json.Marshal(v.Interface())
	if err != nil {
		return json.RawMessage(`null`) // a profile has text, numbers and lists only
	}
	return data
}

// addNotes adds to the report what is not in a field.
func (t *trial) addNotes(d draft) {
	e := t.seen
	if !t.ownProfile() {
		t.note("%s has no profile: the calls, and what the trial cannot find out, are those of the careful one, %q", t.Type, t.Profile.Type)
	}
	if e.delNew.refused() {
		t.note("DEL of an ID that never had an ADD %s; the sidecar runs one before each ADD unless repeatedAdd is %q, and would never get to the ADD", e.delNew.text(), profile.RepeatedAddSameAnswer)
	}
	if e.delTwice.refused() {
		t.note("a second DEL %s; the sidecar repeats a DEL until it succeeds", e.delTwice.text())
	}
	if e.again.refused() && d.CheckProves != profile.ProvesNothing && !e.checkAgain.succeeded() {
		t.note("after the refused ADD, CHECK of the held address %s: an ADD that is refused may release what its ID holds", e.checkAgain.text())
	}
	if !d.Unique && t.seen.second.succeeded() && d.CheckProves == profile.ProvesNothing {
		t.note("two IDs got the same address, and CHECK succeeds for any ID: if the plugin keeps nothing by design, nothing can be lost, and any verifyBy is right")
	}
	switch d.Del {
	case profile.DelQueued:
		t.note("by the profile a DEL that succeeds is carried out later; until then the plugin may still hold the addresses of the trial")
	case profile.DelUnproved:
		t.note("by the profile a DEL that succeeds may have released nothing; look for %s in the plugin's store", t.IDPrefix)
	}
}
