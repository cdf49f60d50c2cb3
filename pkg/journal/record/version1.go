package record

import (
	"encoding/json"
	"time"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/profile"
)

// version1 is a record of format version 1, which only builds before the first release wrote. The
// keys of Record replaced other ones while the number stayed the same, so it has either.
type version1 struct {
	Record
	// Contexts are the invocations.
	Contexts []version1Invocation `json:"contexts"`
	// SettlesAt is AddActsUntil of the last invocation.
	SettlesAt time.Time `json:"settlesAt"`
}

// version1Invocation is an invocation with the earlier name of AddActsUntil.
type version1Invocation struct {
	call.Invocation
	SettlesAt time.Time       `json:"settlesAt"`
	Profile   version1Profile `json:"profile"`
}

// version1Profile is a profile that may lack facts which have been added since.
type version1Profile struct {
	profile.Profile
	// LateDel is that a DEL is queued.
	LateDel            bool  `json:"lateDel"`
	DelOutlivesSeconds *int  `json:"delOutlivesSeconds"`
	Unique             *bool `json:"unique"`
}

// UnmarshalVersion1 returns the record of its JSON in format version 1. The result may be invalid
// (Validate).
func UnmarshalVersion1(raw []byte) (Record, error) {
	var old version1
	if err := json.Unmarshal(raw, &old); err != nil {
		return Record{}, err
	}
	r := old.Record
	switch r.State {
	case "cooling":
		r.State = Cooldown
	case "spent":
		r.State = Tombstone
	}
	for _, inv := range old.Contexts {
		inv.Invocation.AddActsUntil = inv.SettlesAt
		inv.Invocation.Profile = inv.Profile.current()
		r.Invocations = append(r.Invocations, inv.Invocation)
	}
	if last := len(r.Invocations) - 1; last >= 0 && !old.SettlesAt.IsZero() {
		r.Invocations[last].AddActsUntil = old.SettlesAt
	}
	return r, nil
}

// current returns the profile with the facts that it lacks. Those builds knew two plugins whose store
// is on the node.
func (p version1Profile) current() profile.Profile {
	out := p.Profile
	if out.Del == "" {
		out.Del = profile.DelReleased
	}
	if p.LateDel {
		out.Del = profile.DelQueued
	}
	switch {
	case out.Store != "":
	case p.Type == "host-local" || p.Type == "static":
		out.Store = profile.StoreNode
	default:
		out.Store = profile.StoreRemote
	}
	out.DelOutlivesSeconds = p.AddOutlivesSeconds
	if p.DelOutlivesSeconds != nil {
		out.DelOutlivesSeconds = *p.DelOutlivesSeconds
	}
	out.Unique = p.Unique == nil || *p.Unique
	return out
}
