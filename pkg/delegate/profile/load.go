package profile

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
)

//go:embed profiles/*.json
var embedded embed.FS

// Unknown is the type of the conservative profile.
const Unknown = "unknown"

// Set is the profiles by plugin type.
type Set map[string]Profile

// Load returns the embedded profiles, overridden by each of extra (the
// contents of --plugin-profile files). An error names the profile and the field.
func Load(extra ...[]byte) (Set, error) {
	set := Set{}
	names, err := fs.Glob(embedded, "profiles/*.json")
	if err != nil {
		return nil, err
	}
	var files [][]byte
	for _, name := range names {
		data, err := embedded.ReadFile(name)
		if err != nil {
			return nil, err
		}
		files = append(files, data)
	}
	for _, data := range append(files, extra...) {
		p, err := Parse(data)
		if err != nil {
			return nil, err
		}
		set[p.Type] = p
	}
	return set, nil
}

// For returns the profile of a plugin type, the unknown one if there is none.
func (s Set) For(pluginType string) Profile {
	if p, ok := s[pluginType]; ok {
		return p
	}
	return s[Unknown]
}

// Parse reads one profile. Unknown keys, unknown values, missing ones and those
// that contradict each other are refused, so that a slip cannot silently leave
// an address unprotected. The error names the profile and the field.
func Parse(data []byte) (Profile, error) {
	var p Profile
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		return Profile{}, fmt.Errorf("plugin profile: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Profile{}, fmt.Errorf("plugin profile %q: more than one JSON document", p.Type)
	}
	if err := p.validate(); err != nil {
		return Profile{}, err
	}
	return p, p.complete(data)
}

// complete refuses a profile that leaves out what is no word: absent, it would
// mean the less careful value.
func (p Profile) complete(data []byte) error {
	var given struct {
		AddOutlivesSeconds *int  `json:"addOutlivesSeconds"`
		Unique             *bool `json:"unique"`
	}
	if err := json.Unmarshal(data, &given); err != nil {
		return fmt.Errorf("plugin profile %q: %w", p.Type, err)
	}
	if given.AddOutlivesSeconds == nil {
		return p.wrong("addOutlivesSeconds is missing; expected how many seconds an ADD may go on behind its process, 0 for one without a daemon")
	}
	if given.Unique == nil {
		return p.wrong("unique is missing; expected true, or false for a plugin that gives one address to several by design")
	}
	return nil
}
