package plugin

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

func TestPrevResultIsParsedOnce(t *testing.T) {
	f := newFake(t)
	target := f.call("id")
	got := f.add(target)
	known := func(version string) bool { return f.runner.prevResults.has(got.Raw, version) }
	if !known(target.Invocation.CNIVersion) {
		t.Errorf("the result %s of the ADD is parsed again for its CHECK", got.Raw)
	}
	f.start() // again, so nothing is known
	target.PrevResult = got.Raw
	for _, want := range []bool{false, true} {
		if known(target.Invocation.CNIVersion) != want {
			t.Errorf("the result is known: %v, want %v", !want, want)
		}
		f.must(target, call.VerbCheck)
		if prev := f.stdin(call.VerbCheck, "prevResult"); prev != string(got.Raw) {
			t.Errorf("got prevResult %s, want %s", prev, got.Raw)
		}
	}
	if known("1.0.0") {
		t.Error("the result is known in another version")
	}
}

func TestPrevResultIsConvertedEachTime(t *testing.T) {
	for name, raw := range map[string]string{
		"another version": `{"cniVersion":"0.4.0","ips":[{"version":"4","address":"10.1.0.9/24"}]}`,
		"broken":          `{"cniVersion":"1.1.0","routes":[{"dst":"<nil>"}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			target := f.call("id")
			target.PrevResult = json.RawMessage(raw)
			f.must(target, call.VerbDel)
			first := f.stdin(call.VerbDel, "prevResult")
			f.must(target, call.VerbDel)
			if second := f.stdin(call.VerbDel, "prevResult"); first == raw || second != first {
				t.Errorf("got prevResult %s and then %s, want the same and not %s", first, second, raw)
			}
		})
	}
}

func TestPrevResultsOfOneSlot(t *testing.T) {
	var p prevResults
	first, second := []byte(`{"a":1}`), []byte(`{"a":2}`)
	p.add(first, "1.1.0")
	*p.slot(digestOf(first, "1.1.0")) = digestOf(second, "1.1.0")
	if p.has(first, "1.1.0") {
		t.Error("a result is taken for another one")
	}
}

func TestAppendPrevResult(t *testing.T) {
	for name, config := range map[string]string{
		"present":       `{"prevResult":{},"name":"net"}`,
		"escaped":       `{"prev\u0052esult":{},"name":"net"}`,
		"in a string":   `{"name":"net","comment":"\"prevResult\""}`,
		"empty object":  `{}`,
		"not an object": `[]`,
		"empty":         ``,
	} {
		t.Run(name, func(t *testing.T) {
			if got, ok := appendPrevResult([]byte(config), []byte(`{}`)); ok {
				t.Errorf("got %s, want it to be parsed", got)
			}
		})
	}
}

// FuzzAppendPrevResult checks that prevResult appended to the bytes makes the same object as
// prevResult added to the parsed configuration.
func FuzzAppendPrevResult(f *testing.F) {
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
		config, err := json.Marshal(object) // as networkConfig does
		if err != nil {
			t.Fatal(err)
		}
		appended, ok := appendPrevResult(config, prev)
		if !ok {
			return
		}
		parsed, err := withKeys(config, map[string]json.RawMessage{"prevResult": prev})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := membersOf(t, appended), membersOf(t, parsed); !reflect.DeepEqual(got, want) {
			t.Errorf("got %s\nwant %s", appended, parsed)
		}
	})
}

// membersOf returns the members of an object, each value in its shortest form. A duplicate key is an
// error: a reader may take either.
func membersOf(t *testing.T, object []byte) map[string]string {
	t.Helper()
	all := map[string]string{}
	d := json.NewDecoder(bytes.NewReader(object))
	if start, err := d.Token(); start != json.Delim('{') {
		t.Fatalf("%s is not an object: %v", object, err)
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
		t.Errorf("%s is not JSON", object)
	}
	return all
}
