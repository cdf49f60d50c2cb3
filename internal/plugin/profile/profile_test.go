package profile

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
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

func TestParse(t *testing.T) {
	for name, changes := range map[string][]string{
		"without optional fields": nil,
		"verified by ADD":         {"verifyBy", `"add"`, "repeatedAdd", `"same-answer"`, "lost", `{}`},
		"verified by nothing":     {"verifyBy", `"nothing"`, "checkProves", `"nothing"`, "lost", ""},
		"request":                 {"requests", `["CNI_ARGS"]`, "requestForm", `"cidr"`},
		"requires a file":         {"requires", `[{"kind":"file","key":"conf","paths":["/etc/x"],"why":"ADD fails"}]`},
		"small facts":             {"networkName", `"dns-label"`, "statusProves", `"nothing"`, "delGivesUpSeconds", "60", "tryUnsafe", `"it leaks"`},
		"release from address":    {"namespace", `"link"`, "releaseFromAddress", "true"},
		"DEL from any node":       {"store", `"remote"`, "delFromAnyNode", "true"},
		"keyed by":                {"keyedBy", `"container"`},
		"depends on nothing":      {"dependsOnPod", `"nothing"`},
		"longest time to outlive": {"addOutlivesSeconds", "86400"},
	} {
		if _, err := Parse(valid(t, changes...)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestParseInvalid(t *testing.T) {
	for name, c := range map[string]struct {
		data []byte
		text string
	}{
		"not JSON":                      {[]byte("{\n  type: host-local\n}"), "line 2, column 3: invalid character 't'"},
		"text":                          {[]byte("hello"), "line 1, column 1: invalid character 'h' looking for beginning of value; expected one JSON object"},
		"empty":                         {nil, "empty file; expected one JSON object"},
		"half a document":               {[]byte("{\n\"type\":"), "line 2, column 7: unexpected end; expected one JSON object"},
		"a list":                        {[]byte("[1]"), "line 1, column 1: is a JSON array; expected an object"},
		"null":                          {[]byte("null"), `type is ""; expected a plugin type`},
		"two documents":                 {append(valid(t), "{}"...), "more than one JSON document"},
		"extra bracket":                 {append(valid(t), '}'), "more than one JSON document"},
		"an unknown key":                {valid(t, "repeatedAd", `"refused"`), "repeatedAd"},
		"empty type":                    {valid(t, "type", `""`), `type is ""; expected a plugin type`},
		"type with a path":              {valid(t, "type", `"../mine"`), `type is "../mine"; expected a plain file name`},
		"type dots":                     {valid(t, "type", `".."`), `type is ".."; expected the file name`},
		"type with a control character": {valid(t, "type", `"a\u0000"`), `type is "a\x00"; expected a plain file name`},

		"an unknown repeatedAdd":  {valid(t, "repeatedAdd", `"maybe"`), `repeatedAdd is "maybe"`},
		"an unknown verifyBy":     {valid(t, "verifyBy", `"hope"`), `verifyBy is "hope"`},
		"an unknown checkProves":  {valid(t, "checkProves", `"all"`), `checkProves is "all"`},
		"an unknown del":          {valid(t, "del", `"maybe"`), `del is "maybe"`},
		"an unknown keyedBy":      {valid(t, "keyedBy", `"name"`), `keyedBy is "name"`},
		"an unknown dependsOnPod": {valid(t, "dependsOnPod", `"mood"`), `dependsOnPod is "mood"`},
		"ahead without addresses": {valid(t, "dependsOnPod", `"nothing"`, "unique", "false"), `although unique is false`},
		"an unknown podIdentity":  {valid(t, "podIdentity", `"mine"`), `podIdentity is "mine"`},
		"an unknown namespace":    {valid(t, "namespace", `"host"`), `namespace is "host"`},
		"an unknown request":      {valid(t, "requests", `["CNI_ARGS","mail"]`, "requestForm", `"cidr"`), `requests is "mail"`},
		"an unknown requestForm":  {valid(t, "requests", `["CNI_ARGS"]`, "requestForm", `"hex"`), `requestForm is "hex"`},

		"stateDirKey alone":        {valid(t, "stateDirKey", `"dataDir"`), `expected both, or neither`},
		"defaultStateDir alone":    {valid(t, "defaultStateDir", `"/var/x"`), `expected both, or neither`},
		"relative defaultStateDir": {valid(t, "stateDirKey", `"dataDir"`, "defaultStateDir", `"var/x"`), `defaultStateDir is "var/x"; expected an absolute path`},

		"no repeatedAdd":        {valid(t, "repeatedAdd", ""), `repeatedAdd is ""`},
		"no addOutlivesSeconds": {valid(t, "addOutlivesSeconds", ""), "addOutlivesSeconds is missing"},
		"no unique":             {valid(t, "unique", ""), "unique is missing"},
		"unique null":           {valid(t, "unique", "null"), "unique is missing"},

		"negative addOutlivesSeconds":    {valid(t, "addOutlivesSeconds", `-1`), "addOutlivesSeconds is -1"},
		"addOutlivesSeconds above a day": {valid(t, "addOutlivesSeconds", `86401`), "addOutlivesSeconds is 86401"},
		"an unknown store":               {valid(t, "store", `"moon"`), "store is \"moon\""},
		"no lookup":                      {valid(t, "lookup", ""), "lookup is \"\""},
		"lookup without a directory":     {valid(t, "lookup", `"host-local-leases"`), "stateDirKey"},
		"addOutlivesSeconds a text":      {valid(t, "addOutlivesSeconds", `"1s"`), "addOutlivesSeconds is a JSON string; expected a whole number"},
		"DEL from any node, store there": {valid(t, "store", `"node"`, "delFromAnyNode", "true"), `delFromAnyNode is true although store is "node"`},
		"DEL from any node, queued":      {valid(t, "store", `"remote"`, "delFromAnyNode", "true", "del", `"queued"`), `del is "queued"`},
		"release from any namespace":     {valid(t, "releaseFromAddress", "true"), `although namespace is "any"`},
		"an unknown key in lost":         {valid(t, "lost", `{"code":[1]}`), `unknown field "code"`},
		"lost.codes of CNI":              {valid(t, "lost", `{"codes":[999,11],"message":"no such lease"}`), "lost.codes has 11"},
		"lost is a code":                 {valid(t, "lost", `{"codes":[110]}`), "lost.message is empty"},
		"request twice":                  {valid(t, "requests", `["CNI_ARGS","CNI_ARGS"]`, "requestForm", `"cidr"`), `"CNI_ARGS" twice`},
		"requests without requestForm":   {valid(t, "requests", `["CNI_ARGS"]`), `requestForm is ""`},
		"requestForm without requests":   {valid(t, "requestForm", `"cidr"`), "there are no requests"},
		"verified by CHECK without lost": {valid(t, "lost", `{}`), "lost.message is empty"},
		"lost without CHECK": {
			valid(t, "verifyBy", `"nothing"`), "which is not called",
		},
		"verified by CHECK that proves nothing": {valid(t, "checkProves", `"nothing"`), `although checkProves is "nothing"`},
		"verified by ADD that is refused": {
			valid(t, "verifyBy", `"add"`, "lost", `{}`), `although repeatedAdd is "refused"`,
		},
		"verified by ADD that allocates": {
			valid(t, "verifyBy", `"add"`, "lost", `{}`, "repeatedAdd", `"another-address"`), `although repeatedAdd is "another-address"`,
		},
		"verified by ADD after a queued DEL": {
			valid(t, "verifyBy", `"add"`, "lost", `{}`, "repeatedAdd", `"same-answer"`, "del", `"queued"`), `although del is "queued"`,
		},
		"unsafe of earlier builds":   {valid(t, "unsafe", `"x"`), `unknown field "unsafe"`},
		"an empty danger":            {valid(t, "dangers", `["a",""]`), "dangers has an empty text"},
		"an unknown networkName":     {valid(t, "networkName", `"short"`), `networkName is "short"`},
		"an unknown statusProves":    {valid(t, "statusProves", `"all"`), `statusProves is "all"`},
		"negative delGivesUpSeconds": {valid(t, "delGivesUpSeconds", "-1"), "delGivesUpSeconds is -1"},
		"requires an unknown kind":   {valid(t, "requires", `[{"kind":"pipe","paths":["/x"],"why":"y"}]`), `requires[0].kind is "pipe"`},
		"requires no path":           {valid(t, "requires", `[{"kind":"file","paths":[],"why":"y"}]`), `requires[0].paths is []`},
		"requires a relative path":   {valid(t, "requires", `[{"kind":"file","paths":["/x","y"],"why":"y"}]`), `requires[0].paths is ["/x" "y"]`},
		"requires without a reason":  {valid(t, "requires", `[{"kind":"file","paths":["/x"]}]`), `requires[0].why is empty`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Parse(c.data)
			if err == nil || !strings.Contains(err.Error(), c.text) || !strings.HasPrefix(err.Error(), "plugin profile") {
				t.Fatalf("got %v, %v, want an error that says %q", got, err, c.text)
			}
			if strings.Contains(string(c.data), `"type":"mine"`) && json.Valid(c.data) && !strings.Contains(err.Error(), `profile "mine"`) {
				t.Errorf("got %q, want it to name the profile", err)
			}
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
