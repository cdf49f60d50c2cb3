package profile

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strconv"
	"strings"
	"sync"

	"github.com/delegated-ipam/delegated-ipam/internal/files"
)

//go:embed profiles/*.json
var embedded embed.FS

// Unknown is the type of the conservative profile, which For returns for a plugin without one.
const Unknown = "unknown"

// maxFile bounds a profile file, in bytes; real ones have less than a kilobyte.
const maxFile = 1 << 20

// Set has profiles by plugin type.
type Set map[string]Profile

// For returns the profile of a plugin type, or the profile of Unknown if there is none.
func (s Set) For(pluginType string) Profile {
	if p, ok := s[pluginType]; ok {
		return p
	}
	return s[Unknown]
}

// Load returns the embedded profiles.
func Load() (Set, error) {
	entries, err := embedded.ReadDir("profiles")
	if err != nil {
		return nil, err
	}
	set := Set{}
	for _, e := range entries {
		data, err := embedded.ReadFile("profiles/" + e.Name())
		if err == nil {
			err = set.add(data)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.Name(), err)
		}
	}
	return set, nil
}

// Loader returns a function that reads the files of --plugin-profile and returns their profiles over
// the embedded ones: each replaces the profile of its type, a later file an earlier one. It is called
// for each use of a profile, so a fixed file takes effect immediately, and a broken one stops only
// new addresses: the process keeps running, and an attachment has its profile in its record. The
// function may be called concurrently. Its error names the option, the file, the profile and the
// field; the set returned with it has the profiles of the other files before it.
func Loader(names []string) func() (Set, error) {
	load := sync.OnceValues(Load)
	return func() (Set, error) {
		set, err := load()
		if err != nil {
			return nil, err
		}
		set = maps.Clone(set)
		for _, name := range names {
			data, err := files.Read(name, maxFile)
			if err != nil {
				return set, fmt.Errorf("--plugin-profile: %s: %w; expected a file with a profile in JSON", name, err)
			}
			if err := set.add(data); err != nil {
				return set, fmt.Errorf("--plugin-profile: %s: %w", name, err)
			}
		}
		return set, nil
	}
}

// add adds the profile of a file, or the profiles of a JSON array.
func (s Set) add(data []byte) error {
	if !bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("[")) {
		return s.addOne(data)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	_, _ = d.Token() // the bracket
	for d.More() {
		var one json.RawMessage
		if err := d.Decode(&one); err != nil {
			return fmt.Errorf("plugin profiles: %w", locate(data, err))
		}
		// What precedes it becomes space, so that the lines of errors are those of the file.
		padded := bytes.Clone(data[:d.InputOffset()])
		for i := range padded[:len(padded)-len(one)] {
			if padded[i] != '\n' {
				padded[i] = ' '
			}
		}
		if err := s.addOne(padded); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("plugin profiles: %w", locate(data, err))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("plugin profiles: more than one JSON document; expected one array of profiles")
	}
	return nil
}

func (s Set) addOne(data []byte) error {
	p, err := Parse(data)
	if err == nil {
		s[p.Type] = p
	}
	return err
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
	if field, err := p.validate(); err != nil {
		return Profile{}, p.errorf("%w", atField(data, field, err))
	}
	// A number or boolean without a default: absent, it would have the less careful value.
	var given struct {
		AddOutlivesSeconds *int  `json:"addOutlivesSeconds"`
		Unique             *bool `json:"unique"`
	}
	switch err := json.Unmarshal(data, &given); {
	case err != nil:
		return Profile{}, p.errorf("%w", locate(data, err))
	case given.AddOutlivesSeconds == nil:
		return Profile{}, p.errorf("%w", atField(data, "addOutlivesSeconds", errors.New("addOutlivesSeconds is missing; expected how many seconds an ADD or DEL may outlive its process, 0 for a plugin without a daemon")))
	case given.Unique == nil:
		return Profile{}, p.errorf("%w", atField(data, "unique", errors.New("unique is missing; expected true, or false for a plugin that allocates one address to several attachments by design")))
	}
	return p, nil
}

// jsonTypes are the names of JSON types by the kind of a Go type; any other kind is a string.
var jsonTypes = map[string]string{"int": "a whole number", "uint": "a whole number from 0 on", "bool": "true or false", "slice": "a list", "struct": "an object"}

// locate adds to the error of a document that could not be parsed its position, as line and column,
// both from 1, and what was expected there.
func locate(data []byte, err error) error {
	at := func(offset int64) string {
		before := data[:min(max(offset-1, 0), int64(len(data)))]
		return fmt.Sprintf("line %d, column %d", 1+bytes.Count(before, []byte("\n")), len(before)-bytes.LastIndexByte(before, '\n'))
	}
	var syntax *json.SyntaxError
	var wrongType *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("%s: %w; expected one JSON object", at(syntax.Offset), err)
	case errors.As(err, &wrongType):
		want, ok := jsonTypes[wrongType.Type.Kind().String()]
		if !ok {
			want = "a string"
		}
		return fmt.Errorf("%s: %s", at(wrongType.Offset), strings.TrimSpace(fmt.Sprintf("%s is a JSON %s; expected %s", wrongType.Field, wrongType.Value, want)))
	case errors.Is(err, io.EOF):
		return errors.New("empty file; expected one JSON object")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%s: unexpected end; expected one JSON object", at(int64(len(data))))
	}
	// An unknown field, which has no separate error type.
	text := strings.TrimPrefix(err.Error(), "json: ")
	_, field, _ := strings.Cut(text, `"`)
	return atField(data, strings.TrimSuffix(field, `"`), fmt.Errorf("%s; expected a field of docs/reference/profiles.md, Profile fields", text))
}

// atField adds to an error of a field its line, or that of the object, which lacks it.
func atField(data []byte, field string, err error) error {
	i := bytes.Index(data, []byte(strconv.Quote(field)))
	if i < 0 {
		i = len(data) - len(bytes.TrimLeft(data, " \t\r\n"))
	}
	return fmt.Errorf("line %d: %w", 1+bytes.Count(data[:i], []byte("\n")), err)
}
