package profile

import (
	"encoding/json"
	"strings"
	"testing"
)

// valid is a profile that Parse takes, with fields replaced, added or, where
// the value is empty, left out: pairs of field and JSON value.
func valid(t *testing.T, changes ...string) []byte {
	t.Helper()
	object := map[string]json.RawMessage{
		"type": json.RawMessage(`"mine"`), "repeatedAdd": json.RawMessage(`"refused"`), "verifyBy": json.RawMessage(`"check"`),
		"checkProves": json.RawMessage(`"address"`), "lost": json.RawMessage(`{"minCode":100}`), "addOutlivesSeconds": json.RawMessage(`0`),
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
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestAnUnknownTypeGetsTheMostCarefulProfile(t *testing.T) {
	set, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	if got := set.For("never heard of"); got.Type != Unknown {
		t.Errorf("got profile %q, want %q", got.Type, Unknown)
	}
}

func TestAGivenProfileReplacesAnEmbeddedOne(t *testing.T) {
	embedded, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	set, err := embedded.With(
		File{Name: "a", Data: valid(t, "type", `"host-local"`, "addOutlivesSeconds", `1`)},
		File{Name: "b", Data: valid(t)},
		File{Name: "c", Data: valid(t, "type", `"host-local"`, "addOutlivesSeconds", `2`)},
	)
	if err != nil {
		t.Fatal(err)
	}
	if got := set.For("host-local").AddOutlivesSeconds; got != 2 {
		t.Errorf("addOutlivesSeconds is %d, want the 2 of the last file", got)
	}
	if got := set.For("mine").Type; got != "mine" {
		t.Errorf("got the profile %q, want the given one", got)
	}
	if got := embedded.For("host-local").AddOutlivesSeconds; got != 0 || embedded.For("mine").Type != Unknown {
		t.Errorf("the embedded set has changed: %d, %q", got, embedded.For("mine").Type)
	}
}

func TestAProfileThatIsRightIsTaken(t *testing.T) {
	for name, changes := range map[string][]string{
		"with every optional field left out":        nil,
		"verified by ADD, which answers the same":   {"verifyBy", `"add"`, "repeatedAdd", `"same-answer"`, "lost", `{}`},
		"verified by nothing, its CHECK unbelieved": {"verifyBy", `"nothing"`, "checkProves", `"nothing"`, "lost", ""},
		"a request in a form":                       {"requests", `["CNI_ARGS"]`, "requestForm", `"cidr"`},
		"a DEL that proves nothing, and why":        {"del", `"unproved"`, "unsafe", `"it loses addresses"`},
		"the longest times to outlive":              {"addOutlivesSeconds", "86400", "delOutlivesSeconds", "86400"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Parse(valid(t, changes...)); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAProfileThatIsWrongIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		data []byte
		text string
	}{
		"no JSON":                         {[]byte("{\n  type: host-local\n}"), "line 2, column 3: invalid character 't'"},
		"no JSON at all":                  {[]byte("hello"), "line 1, column 1: invalid character 'h' looking for beginning of value; expected one JSON object"},
		"no document":                     {nil, "it is empty; expected one JSON object"},
		"half a document":                 {[]byte("{\n\"type\":"), "line 2, column 7: it ends in the middle; expected one JSON object"},
		"a list":                          {[]byte("[1]"), "line 1, column 1: is a JSON array; expected an object"},
		"null":                            {[]byte("null"), `type is ""; expected a plugin type`},
		"two documents":                   {append(valid(t), "{}"...), "more than one JSON document"},
		"a bracket too many":              {append(valid(t), '}'), "more than one JSON document"},
		"an unknown key":                  {valid(t, "repeatedAd", `"refused"`), "repeatedAd"},
		"an empty type":                   {valid(t, "type", `""`), `type is ""; expected a plugin type`},
		"a type with a path":              {valid(t, "type", `"../mine"`), `type is "../mine"; expected a plain file name`},
		"a type that is dots":             {valid(t, "type", `".."`), `type is ".."; expected the file name`},
		"a type with a control character": {valid(t, "type", `"a\u0000"`), `type is "a\x00"; expected a plain file name`},

		"an unknown repeatedAdd": {valid(t, "repeatedAdd", `"maybe"`), `repeatedAdd is "maybe"`},
		"an unknown verifyBy":    {valid(t, "verifyBy", `"hope"`), `verifyBy is "hope"`},
		"an unknown checkProves": {valid(t, "checkProves", `"all"`), `checkProves is "all"`},
		"an unknown del":         {valid(t, "del", `"maybe"`), `del is "maybe"`},
		"an unknown podIdentity": {valid(t, "podIdentity", `"mine"`), `podIdentity is "mine"`},
		"an unknown namespace":   {valid(t, "namespace", `"host"`), `namespace is "host"`},
		"an unknown request":     {valid(t, "requests", `["CNI_ARGS","mail"]`, "requestForm", `"cidr"`), `requests is "mail"`},
		"an unknown requestForm": {valid(t, "requests", `["CNI_ARGS"]`, "requestForm", `"hex"`), `requestForm is "hex"`},

		"a key of the state folder and no folder": {valid(t, "stateDirKey", `"dataDir"`), `expected both, or neither`},
		"a state folder and no key for it":        {valid(t, "defaultStateDir", `"/var/x"`), `expected both, or neither`},
		"a state folder that is relative":         {valid(t, "stateDirKey", `"dataDir"`, "defaultStateDir", `"var/x"`), `defaultStateDir is "var/x"; expected an absolute path`},

		"no repeatedAdd":        {valid(t, "repeatedAdd", ""), `repeatedAdd is ""`},
		"no verifyBy":           {valid(t, "verifyBy", ""), `verifyBy is ""`},
		"no checkProves":        {valid(t, "checkProves", ""), `checkProves is ""`},
		"no del":                {valid(t, "del", ""), `del is ""`},
		"no podIdentity":        {valid(t, "podIdentity", ""), `podIdentity is ""`},
		"no namespace":          {valid(t, "namespace", ""), `namespace is ""`},
		"no addOutlivesSeconds": {valid(t, "addOutlivesSeconds", ""), "addOutlivesSeconds is missing"},
		"no unique":             {valid(t, "unique", ""), "unique is missing"},
		"a unique that is null": {valid(t, "unique", "null"), "unique is missing"},

		"a negative time to outlive":    {valid(t, "addOutlivesSeconds", `-1`), "addOutlivesSeconds is -1"},
		"more than a day to outlive":    {valid(t, "addOutlivesSeconds", `86401`), "addOutlivesSeconds is 86401"},
		"a negative time of a DEL":      {valid(t, "delOutlivesSeconds", `-1`), "delOutlivesSeconds is -1"},
		"a store that does not exist":   {valid(t, "store", `"moon"`), "store is \"moon\""},
		"no store":                      {valid(t, "store", ""), "store is \"\""},
		"no lookup":                     {valid(t, "lookup", ""), "lookup is \"\""},
		"a lookup without a folder":     {valid(t, "lookup", `"host-local-leases"`), "stateDirKey"},
		"a time that is no number":      {valid(t, "addOutlivesSeconds", `"1s"`), "addOutlivesSeconds is a JSON string; expected a whole number"},
		"an unknown key inside of lost": {valid(t, "lost", `{"code":[1]}`), `unknown field "code"`},
		"a lost code of CNI's own":      {valid(t, "lost", `{"codes":[999,11]}`), "lost.codes has 11"},
		"a lowest lost code of CNI's":   {valid(t, "lost", `{"minCode":99}`), "lost.minCode is 99"},
		"lost codes and a lowest one":   {valid(t, "lost", `{"codes":[999],"minCode":100}`), "both codes and minCode"},
		"the same request twice":        {valid(t, "requests", `["CNI_ARGS","CNI_ARGS"]`, "requestForm", `"cidr"`), `"CNI_ARGS" twice`},
		"requests without their form":   {valid(t, "requests", `["CNI_ARGS"]`), `requestForm is ""`},
		"a form without requests":       {valid(t, "requestForm", `"cidr"`), "there are no requests"},
		"a CHECK whose no is unknown":   {valid(t, "lost", `{}`), "lost is empty"},
		"a no of a CHECK that is unasked": {
			valid(t, "verifyBy", `"nothing"`), "which is not asked",
		},
		"a CHECK that is asked and proves nothing": {valid(t, "checkProves", `"nothing"`), `although checkProves is "nothing"`},
		"an ADD that verifies and is refused": {
			valid(t, "verifyBy", `"add"`, "lost", `{}`), `although repeatedAdd is "refused"`,
		},
		"an ADD that verifies and allocates": {
			valid(t, "verifyBy", `"add"`, "lost", `{}`, "repeatedAdd", `"another-address"`), `although repeatedAdd is "another-address"`,
		},
		"a DEL that proves nothing without a reason": {valid(t, "del", `"unproved"`), "unsafe is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Set{}.With(File{Name: "/etc/mine.json", Data: c.data})
			if err == nil || !strings.Contains(err.Error(), c.text) || !strings.HasPrefix(err.Error(), "/etc/mine.json: plugin profile") {
				t.Fatalf("got %v, %v, want an error that begins with the file and says %q", got, err, c.text)
			}
			if strings.Contains(string(c.data), `"type":"mine"`) && json.Valid(c.data) && !strings.Contains(err.Error(), `profile "mine"`) {
				t.Errorf("got %q, want it to name the profile", err)
			}
		})
	}
}

func TestSaysLostMatchesCodeAndWords(t *testing.T) {
	for name, c := range map[string]struct {
		lost         Lost
		code         uint
		msg, details string
		want         bool
	}{
		"a code of the list":               {Lost{Codes: []uint{5, 999}}, 999, "", "", true},
		"a code outside of the list":       {Lost{Codes: []uint{5, 999}}, 6, "", "", false},
		"a code from the lowest on":        {Lost{MinCode: 100}, 100, "", "", true},
		"a code below the lowest":          {Lost{MinCode: 100}, 99, "", "", false},
		"no code":                          {Lost{Message: "find"}, 0, "find", "", false},
		"an answer that nothing describes": {Lost{}, 999, "Failed to find address", "", false},
		"the words in the message":         {Lost{Message: "find"}, 1, "cannot find it", "", true},
		"the words in the details":         {Lost{Message: "find"}, 1, "", "cannot find it", true},
		"other words":                      {Lost{Message: "find"}, 1, "no", "no", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := (Profile{Lost: c.lost}).IsLost(c.code, c.msg, c.details); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

// FuzzParse: whatever a file holds, it is refused, or it is a profile that
// means the same when it is written and read again.
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
		if err != nil {
			t.Fatal(err)
		}
		second, err := Parse(written)
		if err != nil {
			t.Fatalf("%s was read, and written as %s is refused: %v", data, written, err)
		}
		// What is empty may come back as absent.
		third, err := json.Marshal(second)
		if err != nil || string(third) != string(written) {
			t.Errorf("got %s, want %s", third, written)
		}
	})
}
