package profile

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/scenario"
)

// valid returns a valid profile with changes: pairs of a field and its JSON value, or an empty text
// to leave the field out.
func valid(t *testing.T, changes ...string) []byte {
	t.Helper()
	object := map[string]json.RawMessage{
		"type": json.RawMessage(`"mine"`), "repeatedAdd": json.RawMessage(`"refused"`), "verifyBy": json.RawMessage(`"check"`),
		"checkProves": json.RawMessage(`"address"`), "lost": json.RawMessage(`{"message":"no such lease"}`), "addOutlivesSeconds": json.RawMessage(`0`),
		"del": json.RawMessage(`"released"`), "podIdentity": json.RawMessage(`"none"`), "namespace": json.RawMessage(`"any"`),
		"unique": json.RawMessage(`true`), "store": json.RawMessage(`"node"`), "lookup": json.RawMessage(`"none"`),
	}
	for i := 0; i+1 < len(changes); i += 2 {
		object[changes[i]] = json.RawMessage(changes[i+1])
		if changes[i+1] == "" {
			delete(object, changes[i])
		}
	}
	data, err := json.Marshal(object)
	check.Must(t, err)
	return data
}

func TestUnknownType(t *testing.T) {
	if got := load(t).For("never heard of"); got.Type != Unknown {
		t.Errorf("got profile %q, want %q", got.Type, Unknown)
	}
}

// TestProfiles parses the profiles of testdata/profiles.txt.
func TestProfiles(t *testing.T) {
	scenario.Each(t, "testdata/profiles.txt", func(t *testing.T, lines []string) {
		changes, want, _ := strings.Cut(lines[0], "=>")
		object, without, _ := strings.Cut(changes, "without ")
		var pairs []string
		fields := map[string]json.RawMessage{}
		if strings.TrimSpace(object) != "" {
			check.Must(t, json.Unmarshal([]byte(object), &fields))
		}
		for name, value := range fields {
			pairs = append(pairs, name, string(value))
		}
		for _, name := range strings.Fields(without) {
			pairs = append(pairs, name, "")
		}
		_, err := Parse(valid(t, pairs...))
		if want = strings.TrimSpace(want); want == "" {
			check.NoError(t, err)
			return
		}
		check.Error(t, err, "plugin profile", want)
		if len(fields["type"]) == 0 {
			check.Error(t, err, `profile "mine"`)
		}
	})
}

func TestParseInvalid(t *testing.T) {
	for name, c := range map[string]struct {
		data []byte
		text string
	}{
		"not JSON":        {[]byte("{\n  type: host-local\n}"), "line 2, column 3: invalid character 't'"},
		"text":            {[]byte("hello"), "line 1, column 1: invalid character 'h' looking for beginning of value; expected one JSON object"},
		"empty":           {nil, "empty file; expected one JSON object"},
		"half a document": {[]byte("{\n\"type\":"), "line 2, column 7: unexpected end; expected one JSON object"},
		"a list":          {[]byte("[1]"), "line 1, column 1: is a JSON array; expected an object"},
		"null":            {[]byte("null"), `type is ""; expected a plugin type`},
		"two documents":   {append(valid(t), "{}"...), "more than one JSON document"},
		"extra bracket":   {append(valid(t), '}'), "more than one JSON document"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse(c.data)
			check.Error(t, err, "plugin profile", c.text)
		})
	}
}

func TestProfileIsLost(t *testing.T) {
	for name, c := range map[string]struct {
		lost         Lost
		code         uint
		msg, details string
		want         bool
	}{
		"listed code":         {Lost{Codes: []uint{5, 999}, Message: "find"}, 999, "find", "", true},
		"other code":          {Lost{Codes: []uint{5, 999}, Message: "find"}, 6, "find", "", false},
		"code alone":          {Lost{Codes: []uint{999}}, 999, "connection refused", "", false},
		"no code":             {Lost{Message: "find"}, 0, "find", "", false},
		"empty Lost":          {Lost{}, 999, "Failed to find address", "", false},
		"text in the message": {Lost{Message: "find"}, 1, "cannot find it", "", true},
		"text in the details": {Lost{Message: "find"}, 1, "", "cannot find it", true},
		"other text":          {Lost{Message: "find"}, 1, "no", "no", false},
	} {
		if got := (Profile{Lost: c.lost}).IsLost(c.code, c.msg, c.details); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

// FuzzParse checks that any file is refused, or is a profile that is the same after it is written and
// parsed again.
func FuzzParse(f *testing.F) {
	entries, err := embedded.ReadDir("profiles")
	if err != nil {
		f.Fatal(err)
	}
	for _, e := range entries {
		data, err := embedded.ReadFile("profiles/" + e.Name())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(`null`))
	f.Add([]byte(`{"type":"a"}{}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		first, err := Parse(data)
		if err != nil {
			return
		}
		written, err := json.Marshal(first)
		check.Must(t, err)
		second, err := Parse(written)
		if err != nil {
			t.Fatalf("%s was parsed, and written as %s is refused: %v", data, written, err)
		}
		// An empty value may become an absent one.
		third, err := json.Marshal(second)
		if err != nil || string(third) != string(written) {
			t.Errorf("got %s, want %s", third, written)
		}
	})
}
