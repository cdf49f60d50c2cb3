package delegate

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
)

func TestAResultIsReadOnceAndNotBeforeEachCall(t *testing.T) {
	b := newBench(t)
	target := b.call("id")
	got, err := b.runner.Add(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	if !b.runner.prevResults.knows(got.Raw, target.Invocation.CNIVersion) {
		t.Errorf("the result %s of the ADD is to be read again for its CHECK", got.Raw)
	}
	// As after a restart.
	if b.runner, err = New(b.opts); err != nil {
		t.Fatal(err)
	}
	target.PrevResult = got.Raw
	for _, known := range []bool{false, true} {
		if b.runner.prevResults.knows(got.Raw, target.Invocation.CNIVersion) != known {
			t.Errorf("the result is known: %v, want %v", !known, known)
		}
		b.must(call.VerbCheck, target)
		if prev := b.stdin(call.VerbCheck, "prevResult"); prev != string(got.Raw) {
			t.Errorf("got prevResult %s, want %s", prev, got.Raw)
		}
	}
	if b.runner.prevResults.knows(got.Raw, "1.0.0") {
		t.Error("the result is taken for one of another version")
	}
}

func TestAResultThatCannotBeGivenBackAsItIsIsReadEachTime(t *testing.T) {
	for name, raw := range map[string]string{
		"it is of another version": `{"cniVersion":"0.4.0","ips":[{"version":"4","address":"10.1.0.9/24"}]}`,
		"it is broken":             `{"cniVersion":"1.1.0","routes":[{"dst":"<nil>"}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			target := b.call("id")
			target.PrevResult = json.RawMessage(raw)
			b.must(call.VerbDel, target)
			before := b.stdin(call.VerbDel, "prevResult")
			b.must(call.VerbDel, target)
			if after := b.stdin(call.VerbDel, "prevResult"); before == raw || after != before {
				t.Errorf("got prevResult %s and then %s, want the same and not what cannot be read", before, after)
			}
		})
	}
}

func TestResultsThatMeetInOnePlaceAreBothRead(t *testing.T) {
	var p prevResults
	first, second := []byte(`{"a":1}`), []byte(`{"a":2}`)
	p.remember(first, "1.1.0")
	*p.place(sumOf(first, "1.1.0")) = sumOf(second, "1.1.0")
	if p.knows(first, "1.1.0") {
		t.Error("a result is taken for another one")
	}
}

func TestAConfigurationThatMayHaveAPrevResultIsParsed(t *testing.T) {
	for name, config := range map[string]string{
		"it has one":                `{"prevResult":{},"name":"net"}`,
		"it has one that is hidden": `{"prev\u0052esult":{},"name":"net"}`,
		"it names one in a string":  `{"name":"net","comment":"\"prevResult\""}`,
		"it is empty":               `{}`,
		"it is no object":           `[]`,
		"it is nothing":             ``,
	} {
		if got, ok := withPrevResult([]byte(config), []byte(`{}`)); ok {
			t.Errorf("%s: got %s, want it to be parsed", name, got)
		}
	}
}

// FuzzWithPrevResult: put into the bytes, prevResult makes the same object as put into
// the parsed configuration.
func FuzzWithPrevResult(f *testing.F) {
	for _, config := range []string{
		`{"name":"net","cniVersion":"1.1.0","ipam":{"type":"host-local"},"type":"cilium-cni"}`,
		`{"prevResult":1}`, `{"prev\u0052esult":1}`, `{"prevresult":1,"name":"net"}`, `{"a":"prevResult"}`, `{"a":"\"prevResult\":"}`,
		`{}`, `{"":{}}`, `{"a":"}"}`, `{"a":"\\"}`, `{"a":"<b>&"}`, `{"x":{"prevResult":1}}`, `{"a":[]}`,
	} {
		for _, prev := range []string{goodResult, dualResult, `null`, `"}"`, `{"a":"<b>&"}`} {
			f.Add([]byte(config), []byte(prev))
		}
	}
	f.Fuzz(func(t *testing.T, config, prev []byte) {
		var object map[string]json.RawMessage
		if json.Unmarshal(config, &object) != nil || object == nil || !json.Valid(prev) {
			return
		}
		config, err := json.Marshal(object) // as Network.configuration makes it
		if err != nil {
			t.Fatal(err)
		}
		put, ok := withPrevResult(config, prev)
		if !ok {
			return
		}
		parsed, err := extend(config, map[string]json.RawMessage{"prevResult": prev})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := members(t, put), members(t, parsed); !reflect.DeepEqual(got, want) {
			t.Errorf("got %s\nwant %s", put, parsed)
		}
	})
}

// members are those of an object, each value in its shortest form. A key that is there
// twice is an error: who reads it may take either.
func members(t *testing.T, object []byte) map[string]string {
	t.Helper()
	all := map[string]string{}
	d := json.NewDecoder(bytes.NewReader(object))
	if start, err := d.Token(); start != json.Delim('{') {
		t.Fatalf("%s is no object: %v", object, err)
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			t.Fatalf("%s: %v", object, err)
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			t.Fatalf("%s: %v", object, err)
		}
		short, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		if _, twice := all[key.(string)]; twice {
			t.Errorf("%s has %q twice", object, key)
		}
		all[key.(string)] = string(short)
	}
	if !json.Valid(object) {
		t.Errorf("%s is no JSON", object)
	}
	return all
}
