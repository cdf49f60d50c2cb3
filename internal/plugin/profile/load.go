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

// Unknown is the type of the conservative profile, which For returns for a plugin without one.
const Unknown = "unknown"

// Set has profiles by plugin type.
type Set map[string]Profile

// File is the file of one profile.
type File struct {
	// Name is its path, for errors.
	Name string
	// Data is its content.
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

// With returns a copy of the set with the profiles of files (--plugin-profile), which replace those
// of the same type; a later file replaces an earlier one. An error names the file, the profile and
// the field.
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

// For returns the profile of a plugin type, or that of Unknown if there is none.
func (s Set) For(pluginType string) Profile {
	if p, ok := s[pluginType]; ok {
		return p
	}
	return s[Unknown]
}

// Parse parses one profile, a JSON object. It refuses unknown keys, and values that are unknown,
// missing or contradict each other, so that a mistake cannot silently leave an address unprotected.
// The error names the profile and the field.
func Parse(data []byte) (Profile, error) {
	var p Profile
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		return Profile{}, p.errorf("%w", locate(data, err))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Profile{}, p.errorf("more than one JSON document; expected one JSON object")
	}
	if err := p.validate(); err != nil {
		return Profile{}, err
	}
	return p, p.requirePresent(data)
}

// requirePresent refuses a profile without a number or boolean that has no default: absent, it
// would have the less careful value.
func (p Profile) requirePresent(data []byte) error {
	var given struct {
		AddOutlivesSeconds *int  `json:"addOutlivesSeconds"`
		Unique             *bool `json:"unique"`
	}
	if err := json.Unmarshal(data, &given); err != nil {
		return p.errorf("%w", locate(data, err))
	}
	if given.AddOutlivesSeconds == nil {
		return p.errorf("addOutlivesSeconds is missing; expected how many seconds an ADD or DEL may outlive its process, 0 for a plugin without a daemon")
	}
	if given.Unique == nil {
		return p.errorf("unique is missing; expected true, or false for a plugin that allocates one address to several attachments by design")
	}
	return nil
}
