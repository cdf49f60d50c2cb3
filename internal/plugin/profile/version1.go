package profile

import "encoding/json"

// Version1 is a profile as records of format version 1 have it (package record). Facts that were added
// since may be missing; UnmarshalJSON sets those by which held attachments are verified and released.
type Version1 Profile

// UnmarshalJSON implements json.Unmarshaler.
func (v *Version1) UnmarshalJSON(data []byte) error {
	var old struct {
		Profile
		// LateDel is the earlier form of DelQueued.
		LateDel            bool  `json:"lateDel"`
		DelOutlivesSeconds *int  `json:"delOutlivesSeconds"`
		Unique             *bool `json:"unique"`
	}
	if err := json.Unmarshal(data, &old); err != nil {
		return err
	}
	p := old.Profile
	if p.Del == "" {
		p.Del = DelReleased
	}
	if old.LateDel {
		p.Del = DelQueued
	}
	switch {
	case p.Store != "":
	case p.Type == "host-local" || p.Type == "static":
		p.Store = StoreNode
	default:
		p.Store = StoreRemote
	}
	p.DelOutlivesSeconds = p.AddOutlivesSeconds
	if old.DelOutlivesSeconds != nil {
		p.DelOutlivesSeconds = *old.DelOutlivesSeconds
	}
	p.Unique = old.Unique == nil || *old.Unique
	*v = Version1(p)
	return nil
}
