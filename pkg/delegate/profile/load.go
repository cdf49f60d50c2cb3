package profile

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
)

//go:embed profiles/*.json
var embedded embed.FS

// Unknown is the type of the conservative profile.
const Unknown = "unknown"

// Set is the profiles by plugin type.
type Set map[string]Profile

// File is one profile as it is written down.
type File struct {
	// Name is the file's path, as errors name it.
	Name string
	// Data is what it holds.
	Data []byte
}

// Load returns the embedded profiles.
func Load() (Set, error) {
	names, err := fs.Glob(embedded, "profiles/*.json")
	if err != nil {
		return nil, err
	}
	files := make([]File, len(names))
	for i, name := range names {
		files[i].Name = name
		if files[i].Data, err = embedded.ReadFile(name); err != nil {
			return nil, err
		}
	}
	return Set{}.With(files...)
}

// With returns the set with the profiles of files (those of --plugin-profile) in
// place of those with the same type; a later file counts over an earlier one. The
// set itself stays as it is. An error names the file, the profile and the field.
func (s Set) With(files ...File) (Set, error) {
	out := maps.Clone(s)
	for _, f := range files {
		p, err := Parse(f.Data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
		out[p.Type] = p
	}
	return out, nil
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
		return Profile{}, p.wrong("%w", explain(data, err))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Profile{}, p.wrong("more than one JSON document; expected one JSON object")
	}
	if err := p.validate(); err != nil {
		return Profile{}, err
	}
	return p, p.complete(data)
}

// complete sets what has a default, and refuses a profile that lacks a number or
// boolean without one: absent, it would mean the less careful value.
func (p *Profile) complete(data []byte) error {
	var given struct {
		AddOutlivesSeconds *int  `json:"addOutlivesSeconds"`
		DelOutlivesSeconds *int  `json:"delOutlivesSeconds"`
		Unique             *bool `json:"unique"`
	}
	if err := json.Unmarshal(data, &given); err != nil {
		return p.wrong("%w", explain(data, err))
	}
	if given.AddOutlivesSeconds == nil {
		return p.wrong("addOutlivesSeconds is missing; expected how many seconds an ADD may go on behind its process, 0 for one without a daemon")
	}
	if given.Unique == nil {
		return p.wrong("unique is missing; expected true, or false for a plugin that gives one address to several by design")
	}
	if given.DelOutlivesSeconds == nil {
		p.DelOutlivesSeconds = p.AddOutlivesSeconds
	}
	return nil
}
