package profiletry

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// Origins of a Fact.
const (
	// FromTrial: the trial has determined it.
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
	// Reason is the observation of the trial, or why the field was not tried.
	Reason string `json:"reason"`
}

// Difference is one field in which the proposal differs from the profile of the type.
type Difference struct {
	// Field is its name in the JSON of a profile.
	Field string `json:"field"`
	// Profile and Proposal are its values.
	Profile  json.RawMessage `json:"profile"`
	Proposal json.RawMessage `json:"proposal"`
	// Reason is the observation of the trial.
	Reason string `json:"reason"`
}

// untriable has, for each field that no trial can determine, the reason. A test compares it with the
// fields of a profile.
var untriable = map[string]string{
	"type":               "the plugin under trial",
	"addOutlivesSeconds": "an ADD would have to be killed in the middle",
	"del":                "the effect of a DEL is in the plugin's store, whose format is unknown",
	"store":              "the place of its allocations is not in the plugin's results",
	"lookup":             "the format of the plugin's store is unknown",
	"waitsForConfig":     "the actions of the plugin before it reads its configuration are not in its results",
	"podIdentity":        "whether it is harmful to name a pod, or none, depends on the other users of the plugin",
	"namespace":          "the trial has one CNI_NETNS",
	"stateDirKey":        "the plugin's own files are not in its results",
	"defaultStateDir":    "the plugin's own files are not in its results",
	"networkName":        "the network has one name",
	"statusProves":       "the backend would have to be stopped",
	"delFromAnyNode":     "a second node would be needed",
	"perNodeKey":         "a second node would be needed",
	"networkNameUnless":  "the network has one name",
	"delGivesUpSeconds":  "the backend would have to be stopped",
	"requires":           "the files that the plugin reads are not in its results",
	"dangers":            "the later actions of a backend are not in the plugin's results",
	"tryUnsafe":          "it concerns trials",
	"sources":            "for readers",
}

// propose makes the proposal of the report from the evidence. The error is that some fact could not
// be tried because of an ADD with an unknown outcome.
func (t *trial) propose() error {
	d := t.conclude()
	if !t.ownProfile() {
		d.Sources = []string{fmt.Sprintf("tried with delegated-ipam profile try, CNI version %s; the other fields are taken from the profile %q", t.report.CNIVersion, t.Profile.Type)}
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

// parsed returns a profile as it is read from a file of --plugin-profile.
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

// addNotes adds the observations without a field to the report.
func (t *trial) addNotes(d draft) {
	e := t.seen
	if !t.ownProfile() {
		t.note("%s has no profile: the calls, and the fields that cannot be tried, are those of the careful one, %q", t.Type, t.Profile.Type)
	}
	if !t.ownProfile() && d.PodIdentity == profile.PodIdentitySynthetic {
		t.note("podIdentity is %q, because a plugin that needs a pod might release nothing without one. Danger: a controller that frees the addresses of pods that do not exist, as that of whereabouts does, frees held ones; set %q if the plugin needs no pod, or else name such a controller in dangers",
			d.PodIdentity, profile.PodIdentityNone)
	}
	if e.delNew.refused() {
		t.note("DEL of an ID that never had an ADD %s; the sidecar runs one before each ADD unless repeatedAdd is %q, and would never reach the ADD", e.delNew.text(), profile.RepeatedAddSameAnswer)
	}
	if e.delTwice.refused() {
		t.note("a second DEL %s; the sidecar repeats a DEL until it succeeds", e.delTwice.text())
	}
	if e.again.refused() && d.CheckProves != profile.ProvesNothing && !e.checkAgain.succeeded() {
		t.note("after the refused ADD, CHECK of the held address %s: a refused ADD may release the addresses of its ID", e.checkAgain.text())
	}
	if !d.Unique && t.seen.second.succeeded() && d.CheckProves == profile.ProvesNothing {
		t.note("two IDs got the same address, and CHECK succeeds for any ID: if the plugin keeps nothing by design, nothing can be lost, and any verifyBy is correct")
	}
	if d.SingleUseIDs() {
		t.note("by the profile a successful DEL is executed later; until then the plugin may still hold the addresses of the trial")
	}
	if d.Danger() != "" {
		t.note("the profile has dangers: if by one of them a DEL may report success without having released, search the plugin's store for %s", t.IDPrefix)
	}
}
