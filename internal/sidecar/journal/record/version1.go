package record

import (
	"encoding/json"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
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
	SettlesAt time.Time        `json:"settlesAt"`
	Profile   profile.Version1 `json:"profile"`
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
		inv.Invocation.Profile = profile.Profile(inv.Profile)
		r.Invocations = append(r.Invocations, inv.Invocation)
	}
	if last := len(r.Invocations) - 1; last >= 0 && !old.SettlesAt.IsZero() {
		r.Invocations[last].AddActsUntil = old.SettlesAt
	}
	return r, nil
}
