package profile

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
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

// Parse reads one profile. Unknown keys and unknown values are refused, so
// that a misspelt one cannot silently leave an address unprotected.
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
	return p, p.validate()
}

func (p Profile) validate() error {
	if p.Type == "" {
		return fmt.Errorf("plugin profile: type is empty; expected a plugin type such as host-local")
	}
	checks := []error{
		oneOf(p.Type, "repeatedAdd", p.RepeatedAdd, RepeatedAddRefused, RepeatedAddSameAnswer, RepeatedAddAnotherAddress),
		oneOf(p.Type, "verifyBy", p.VerifyBy, VerifyCheck, VerifyAdd, VerifyNothing),
		oneOf(p.Type, "checkProves", p.CheckProves, ProvesAddress, ProvesPresence),
		oneOf(p.Type, "podIdentity", p.PodIdentity, PodIdentityNone, PodIdentitySynthetic),
	}
	for _, r := range p.Requests {
		checks = append(checks, oneOf(p.Type, "requests", r, RequestRuntimeConfig, RequestArgsCNI, RequestCNIArgs))
	}
	if p.AddOutlivesSeconds < 0 {
		checks = append(checks, fmt.Errorf("plugin profile %q: addOutlivesSeconds is %d; expected 0 or more", p.Type, p.AddOutlivesSeconds))
	}
	for _, err := range checks {
		if err != nil {
			return err
		}
	}
	return nil
}

func oneOf[T ~string](pluginType, field string, got T, want ...T) error {
	if slices.Contains(want, got) {
		return nil
	}
	return fmt.Errorf("plugin profile %q: %s is %q; expected one of %q", pluginType, field, got, want)
}
