package journal

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

// bytesOf are texts, some of them no UTF-8, and some that JSON or the journal
// has in its own language.
func bytesOf() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.String(),
		rapid.Custom(func(t *rapid.T) string { return string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")) }),
		rapid.SampledFrom([]string{"", replaced, "\ufffd", "\xff", "\u2028", "<&>", `"`, `\`, "\x00", "null"}),
	)
}

// jsonOf are configurations, some of them no JSON.
func jsonOf() *rapid.Generator[json.RawMessage] {
	return rapid.Custom(func(t *rapid.T) json.RawMessage {
		return json.RawMessage(rapid.OneOf(
			rapid.SampledFrom([]string{
				`{}`, `null`, ` { "a" : [ 1e400 , -0 , 1.50 ] } `, `{"a":1,"a":2}`, `"\ufffd"`, `"\ud800"`, `"<&>"`, "\"\u2028\"", "\"\xff\"", `{`, ``, `{} {}`,
				strings.Repeat("[", 9999) + strings.Repeat("]", 9999), strings.Repeat("[", 12) + strings.Repeat("]", 12),
			}),
			rapid.Map(bytesOf(), func(s string) string {
				data, _ := json.Marshal(map[string]string{s: s}) // a map of strings always has JSON
				return string(data)
			}),
		).Draw(t, "json"))
	})
}

func timeOf() *rapid.Generator[time.Time] {
	return rapid.Custom(func(t *rapid.T) time.Time {
		at := time.Unix(rapid.Int64Range(-70_000_000_000, 300_000_000_000).Draw(t, "seconds"), rapid.Int64Range(0, 999_999_999).Draw(t, "nanoseconds"))
		zone := rapid.OneOf(rapid.SampledFrom([]int{0, 1, -30, 59, 60, 3600, -5*3600 - 1800, 86399, 90000}), rapid.IntRange(-100_000, 100_000)).Draw(t, "zone")
		return rapid.SampledFrom([]time.Time{{}, at, at.UTC(), at.In(time.FixedZone("x", zone))}).Draw(t, "time")
	})
}

func addrOf() *rapid.Generator[netip.Addr] {
	return rapid.Custom(func(t *rapid.T) netip.Addr {
		ip, _ := netip.AddrFromSlice(rapid.OneOf(
			rapid.SliceOfN(rapid.Byte(), 4, 4), rapid.SliceOfN(rapid.Byte(), 16, 16), rapid.SampledFrom([][]byte{nil, netip.MustParseAddr("::ffff:1.2.3.4").AsSlice()}),
		).Draw(t, "address"))
		return ip.WithZone(rapid.OneOf(rapid.Just(""), bytesOf()).Draw(t, "zone"))
	})
}

func prefixOf() *rapid.Generator[netip.Prefix] {
	return rapid.Custom(func(t *rapid.T) netip.Prefix {
		return netip.PrefixFrom(addrOf().Draw(t, "address"), rapid.IntRange(-1, 129).Draw(t, "bits"))
	})
}

// recordOf are records as they may be, and some as they must not be.
func recordOf() *rapid.Generator[record.Record] {
	return rapid.Custom(func(t *rapid.T) record.Record {
		r := sample("a")
		r.Generation = rapid.Int().Draw(t, "generation")
		for _, text := range []*string{&r.Owner, &r.Pool, &r.Node, &r.Network, &r.BootID, &r.Result.MasterMAC, &r.Expiration.UUID} {
			if rapid.Bool().Draw(t, "changed") {
				*text = bytesOf().Draw(t, "text")
			}
		}
		r.State = rapid.SampledFrom([]record.State{record.Adding, record.Held, record.Cooldown, record.Releasing, record.Tombstone}).Draw(t, "state")
		r.Result.Addresses = rapid.OneOf(rapid.Just(r.Result.Addresses), rapid.SliceOfN(rapid.Custom(func(t *rapid.T) call.Address {
			return call.Address{Prefix: prefixOf().Draw(t, "prefix"), Gateway: addrOf().Draw(t, "gateway")}
		}), 0, 2)).Draw(t, "addresses")
		r.Result.Raw = rapid.OneOf(rapid.Just(r.Result.Raw), jsonOf()).Draw(t, "raw")
		r.Claims = rapid.SampledFrom([][]record.Family{nil, {}, r.Claims}).Draw(t, "claims")
		for _, at := range []*time.Time{&r.Created, &r.Changed, &r.ReleaseAt, &r.Expiration.Deadline} {
			if rapid.Bool().Draw(t, "changed") {
				*at = timeOf().Draw(t, "time")
			}
		}
		r.Invocations = rapid.OneOf(rapid.SampledFrom([][]call.Invocation{r.Invocations, {}, nil}), rapid.SliceOfN(rapid.Custom(func(t *rapid.T) call.Invocation {
			c := call.Invocation{Config: jsonOf().Draw(t, "config"), PrevResult: jsonOf().Draw(t, "result"), AddActsUntil: timeOf().Draw(t, "settles")}
			c.Args, c.Profile.Unsafe = bytesOf().Draw(t, "args"), bytesOf().Draw(t, "unsafe")
			c.Capabilities = rapid.SliceOfN(bytesOf(), 0, 2).Draw(t, "capabilities")
			c.Requested = rapid.SliceOfN(prefixOf(), 0, 2).Draw(t, "requested")
			c.Profile.Lost.Codes = rapid.SliceOfN(rapid.Uint(), 0, 2).Draw(t, "codes")
			return c
		}), 0, 2)).Draw(t, "contexts")
		return r
	})
}

// exactAndReadBack fails where exact is sure of what does not come back, and where
// something is encoded that is not the same record once it is decoded.
func exactAndReadBack(t *rapid.T) {
	r := recordOf().Draw(t, "record")
	if raw, err := json.Marshal(r); err == nil && r.Validate() == nil && exact(r, raw) {
		if err := readBack(raw); err != nil {
			t.Fatalf("it is sure of %s, which does not come back: %v", raw, err)
		}
	}
	data, err := (&Journal{}).encode(r)
	if err != nil {
		return
	}
	back, err := decode(data)
	if err != nil {
		t.Fatalf("%q was encoded, and is refused: %v", data, err)
	}
	if !sameRecord(back, r) {
		t.Fatalf("%+v became %+v", r, back)
	}
}

func TestWhateverIsEncodedIsDecodedAsTheSameRecord(t *testing.T) { rapid.Check(t, exactAndReadBack) }

func FuzzEncode(f *testing.F) { f.Fuzz(rapid.MakeFuzz(exactAndReadBack)) }

func TestWhatJSONMayChangeIsReadBack(t *testing.T) {
	for name, change := range map[string]func(*record.Record){
		"a text that is no UTF-8":               func(r *record.Record) { r.Node = "a\xffb" },
		"one in a profile":                      func(r *record.Record) { r.Invocations[0].Profile.Sources = []string{"a\xffb"} },
		"a configuration with that text":        func(r *record.Record) { r.Invocations[0].Config = json.RawMessage(`{"a":"\ufffd"}`) },
		"a zone with seconds":                   func(r *record.Record) { r.Created = r.Created.In(time.FixedZone("old", 3601)) },
		"a zone with seconds in a context":      func(r *record.Record) { r.Invocations[0].AddActsUntil = r.Created.In(time.FixedZone("old", 3601)) },
		"a zone with seconds in the expiration": func(r *record.Record) { r.Expiration.Deadline = r.Created.In(time.FixedZone("old", 3601)) },
		"a gateway with a zone":                 func(r *record.Record) { r.Result.Addresses[0].Gateway = netip.MustParseAddr("fe80::1%eth0") },
		"a request that is no prefix": func(r *record.Record) {
			r.Invocations[0].Requested = []netip.Prefix{netip.PrefixFrom(netip.MustParseAddr("::1"), 129)}
		},
		"as many brackets as may be nested": func(r *record.Record) {
			r.Invocations[0].Config = json.RawMessage(strings.Repeat("[", 9999) + strings.Repeat("]", 9999))
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := sample("a")
			raw := func() []byte {
				raw, err := json.Marshal(r)
				must(t, err)
				return raw
			}
			if !exact(r, raw()) {
				t.Error("the record that it is made of is read back, too")
			}
			change(&r)
			if exact(r, raw()) {
				t.Error("it is not")
			}
		})
	}
}

// What exact says holds for these types; who adds a field of another must look
// whether it comes back from JSON, and say so there.
func TestARecordHasOnlyFieldsThatExactKnows(t *testing.T) {
	var special []string
	var look func(path string, of reflect.Type)
	look = func(path string, of reflect.Type) {
		switch of {
		case reflect.TypeFor[time.Time](), reflect.TypeFor[netip.Addr](), reflect.TypeFor[netip.Prefix](), reflect.TypeFor[json.RawMessage]():
			special = append(special, path+" "+of.String())
			return
		}
		for _, own := range []reflect.Type{reflect.TypeFor[json.Marshaler](), reflect.TypeFor[interface{ MarshalText() ([]byte, error) }]()} {
			if of.Implements(own) || reflect.PointerTo(of).Implements(own) {
				t.Errorf("%s (%s) makes its own JSON", path, of)
			}
		}
		switch of.Kind() {
		case reflect.String, reflect.Bool, reflect.Int, reflect.Uint:
		case reflect.Slice, reflect.Pointer:
			look(path, of.Elem())
		case reflect.Struct:
			for field := range of.Fields() {
				if !field.IsExported() || strings.Contains(field.Tag.Get("json"), ",string") {
					t.Errorf("%s.%s is not exported, or a number in quotes", path, field.Name)
				}
				look(path+"."+field.Name, field.Type)
			}
		default:
			t.Errorf("%s is of kind %s", path, of.Kind())
		}
	}
	look("", reflect.TypeFor[record.Record]())
	slices.Sort(special)
	if want := []string{
		".Changed time.Time", ".Created time.Time", ".Expiration.Deadline time.Time",
		".Invocations.AddActsUntil time.Time", ".Invocations.Config json.RawMessage",
		".Invocations.PrevResult json.RawMessage", ".Invocations.Requested netip.Prefix",
		".LateDel.Until time.Time", ".ReleaseAt time.Time", ".Result.Addresses.Gateway netip.Addr", ".Result.Addresses.Prefix netip.Prefix", ".Result.Raw json.RawMessage",
	}; !slices.Equal(special, want) {
		t.Errorf("it has\n%q\nand exact looks at\n%q", special, want)
	}
}
