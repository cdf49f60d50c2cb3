package profile

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// valid is a profile that Parse takes, with one field replaced or added.
func valid(t *testing.T, field, value string) []byte {
	t.Helper()
	object := map[string]json.RawMessage{
		"type": json.RawMessage(`"mine"`), "repeatedAdd": json.RawMessage(`"refused"`), "verifyBy": json.RawMessage(`"check"`),
		"checkProves": json.RawMessage(`"address"`), "podIdentity": json.RawMessage(`"none"`),
	}
	if field != "" {
		object[field] = json.RawMessage(value)
	}
	data, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestEveryEmbeddedProfileIsLoadedUnderItsType(t *testing.T) {
	set, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, pluginType := range []string{"host-local", Unknown} {
		if got := set[pluginType]; got.Type != pluginType || len(got.Sources) == 0 {
			t.Errorf("got profile %+v under %q, want one of that type with its sources", got, pluginType)
		}
	}
}

func TestTheUnknownProfileIsTheMostCarefulOne(t *testing.T) {
	set, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	got := set.For("never heard of")
	if got.Type != Unknown || got.RepeatedAdd != RepeatedAddAnotherAddress || got.HonoursRequest() || got.AddOutlives() != 240*time.Second {
		t.Errorf("got %+v, want a repeated ADD that gives another address, no request honoured, and an ADD that outlives its client by 240 s", got)
	}
}

func TestAGivenProfileReplacesAnEmbeddedOne(t *testing.T) {
	set, err := Load(valid(t, "type", `"host-local"`), valid(t, "", ""))
	if err != nil {
		t.Fatal(err)
	}
	if got := set.For("host-local"); got.HonoursRequest() {
		t.Errorf("got %+v, want the given one, which honours no request", got)
	}
	if got := set.For("mine"); got.Type != "mine" {
		t.Errorf("got %+v, want the given one", got)
	}
}

func TestAProfileThatIsWrongIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		data []byte
		text string
	}{
		"no JSON":                       {[]byte("hello"), "plugin profile"},
		"no document":                   {nil, "plugin profile"},
		"two documents":                 {append(valid(t, "", ""), "{}"...), "more than one JSON document"},
		"a bracket too many":            {append(valid(t, "", ""), '}'), "more than one JSON document"},
		"an unknown key":                {valid(t, "repeatedAd", `"refused"`), "repeatedAd"},
		"an empty type":                 {valid(t, "type", `""`), "type is empty"},
		"an unknown repeatedAdd":        {valid(t, "repeatedAdd", `"maybe"`), `repeatedAdd is "maybe"`},
		"an unknown verifyBy":           {valid(t, "verifyBy", `"hope"`), `verifyBy is "hope"`},
		"an unknown checkProves":        {valid(t, "checkProves", `""`), `checkProves is ""`},
		"an unknown podIdentity":        {valid(t, "podIdentity", `"given"`), `podIdentity is "given"`},
		"an unknown request":            {valid(t, "requests", `["CNI_ARGS","mail"]`), `requests is "mail"`},
		"a negative time":               {valid(t, "addOutlivesSeconds", `-1`), "addOutlivesSeconds is -1"},
		"a time that is no number":      {valid(t, "addOutlivesSeconds", `"1s"`), "plugin profile"},
		"an unknown key inside of lost": {valid(t, "lost", `{"code":[1]}`), "code"},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := Load(c.data); err == nil || !strings.Contains(err.Error(), c.text) {
				t.Errorf("got %v, %v, want an error that says %q", got, err, c.text)
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
		"a code of the list":         {Lost{Codes: []uint{5, 999}}, 999, "", "", true},
		"a code outside of the list": {Lost{Codes: []uint{5, 999}}, 6, "", "", false},
		"a code from the lowest on":  {Lost{MinCode: 100}, 100, "", "", true},
		"a code below the lowest":    {Lost{MinCode: 100}, 99, "", "", false},
		"no code":                    {Lost{}, 0, "", "", false},
		"the words in the message":   {Lost{Message: "find"}, 1, "cannot find it", "", true},
		"the words in the details":   {Lost{Message: "find"}, 1, "", "cannot find it", true},
		"other words":                {Lost{Message: "find"}, 1, "no", "no", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := (Profile{Lost: c.lost}).SaysLost(c.code, c.msg, c.details); got != c.want {
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
