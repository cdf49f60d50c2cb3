package journal

import (
	"encoding/json"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// drawText generates texts, some of them invalid UTF-8 or special to JSON.
func drawText() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.String(),
		rapid.Custom(func(t *rapid.T) string { return string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")) }),
		rapid.SampledFrom([]string{"", `\ufffd`, "\ufffd", "\xff", "\u2028", "<&>", `"`, `\`, "\x00", "null"}),
	)
}

// drawJSON generates configurations, some of them invalid JSON.
func drawJSON() *rapid.Generator[json.RawMessage] {
	return rapid.Custom(func(t *rapid.T) json.RawMessage {
		return json.RawMessage(rapid.OneOf(
			rapid.SampledFrom([]string{
				`{}`, `null`, ` { "a" : [ 1e400 , -0 , 1.50 ] } `, `{"a":1,"a":2}`, `"\ufffd"`, `"\ud800"`, `"<&>"`, "\"\u2028\"", "\"\xff\"", `{`, ``, `{} {}`,
				strings.Repeat("[", 9999) + strings.Repeat("]", 9999), strings.Repeat("[", 12) + strings.Repeat("]", 12),
			}),
			rapid.Map(drawText(), func(s string) string {
				data, _ := json.Marshal(map[string]string{s: s}) // never fails for strings
				return string(data)
			}),
		).Draw(t, "json"))
	})
}

func drawTime() *rapid.Generator[time.Time] {
	return rapid.Custom(func(t *rapid.T) time.Time {
		at := time.Unix(rapid.Int64Range(-70_000_000_000, 300_000_000_000).Draw(t, "seconds"), rapid.Int64Range(0, 999_999_999).Draw(t, "nanoseconds"))
		zone := rapid.OneOf(rapid.SampledFrom([]int{0, 1, -30, 59, 60, 3600, -5*3600 - 1800, 86399, 90000}), rapid.IntRange(-100_000, 100_000)).Draw(t, "zone")
		return rapid.SampledFrom([]time.Time{{}, at, at.UTC(), at.In(time.FixedZone("x", zone))}).Draw(t, "time")
	})
}

func drawAddr() *rapid.Generator[netip.Addr] {
	return rapid.Custom(func(t *rapid.T) netip.Addr {
		ip, _ := netip.AddrFromSlice(rapid.OneOf(
			rapid.SliceOfN(rapid.Byte(), 4, 4), rapid.SliceOfN(rapid.Byte(), 16, 16), rapid.SampledFrom([][]byte{nil, netip.MustParseAddr("::ffff:1.2.3.4").AsSlice()}),
		).Draw(t, "address"))
		return ip.WithZone(rapid.OneOf(rapid.Just(""), drawText()).Draw(t, "zone"))
	})
}

func drawPrefix() *rapid.Generator[netip.Prefix] {
	return rapid.Custom(func(t *rapid.T) netip.Prefix {
		return netip.PrefixFrom(drawAddr().Draw(t, "address"), rapid.IntRange(-1, 129).Draw(t, "bits"))
	})
}

// drawRecord generates records, some of them invalid.
func drawRecord() *rapid.Generator[record.Record] {
	return rapid.Custom(func(t *rapid.T) record.Record {
		r := sample("a")
		r.Generation = rapid.Int().Draw(t, "generation")
		for _, text := range []*string{&r.Owner, &r.Pool, &r.Node, &r.Network, &r.BootID, &r.Result.MasterMAC, &r.Expiration.UUID} {
			if rapid.Bool().Draw(t, "changed") {
				*text = drawText().Draw(t, "text")
			}
		}
		r.State = rapid.SampledFrom([]record.State{record.Adding, record.Held, record.Cooldown, record.Releasing, record.Tombstone}).Draw(t, "state")
		r.Result.Addresses = rapid.OneOf(rapid.Just(r.Result.Addresses), rapid.SliceOfN(rapid.Custom(func(t *rapid.T) call.Address {
			return call.Address{Prefix: drawPrefix().Draw(t, "prefix"), Gateway: drawAddr().Draw(t, "gateway")}
		}), 0, 2)).Draw(t, "addresses")
		r.Result.Raw = rapid.OneOf(rapid.Just(r.Result.Raw), drawJSON()).Draw(t, "raw")
		r.Claims = rapid.SampledFrom([][]record.Family{nil, {}, r.Claims}).Draw(t, "claims")
		for _, at := range []*time.Time{&r.Created, &r.Changed, &r.ReleaseAt, &r.Expiration.Deadline} {
			if rapid.Bool().Draw(t, "changed") {
				*at = drawTime().Draw(t, "time")
			}
		}
		r.Invocations = rapid.OneOf(rapid.SampledFrom([][]call.Invocation{r.Invocations, {}, nil}), rapid.SliceOfN(rapid.Custom(func(t *rapid.T) call.Invocation {
			c := call.Invocation{Config: drawJSON().Draw(t, "config"), PrevResult: drawJSON().Draw(t, "result"), AddActsUntil: drawTime().Draw(t, "AddActsUntil")}
			c.Args, c.Profile.TryUnsafe = drawText().Draw(t, "args"), drawText().Draw(t, "tryUnsafe")
			c.Capabilities = rapid.SliceOfN(drawText(), 0, 2).Draw(t, "capabilities")
			c.Requested = rapid.SliceOfN(drawPrefix(), 0, 2).Draw(t, "requested")
			c.Profile.Lost.Codes = rapid.SliceOfN(rapid.Uint(), 0, 2).Draw(t, "codes")
			return c
		}), 0, 2)).Draw(t, "invocations")
		return r
	})
}

// checkRoundTrip fails if encode and decode change a record.
func checkRoundTrip(t *rapid.T) {
	r := drawRecord().Draw(t, "record")
	data, err := (&Journal{}).encode(r)
	if err != nil {
		return
	}
	back, err := decodeRecord(data)
	if err != nil {
		t.Fatalf("%q was encoded, but not decoded: %v", data, err)
	}
	if !sameRecord(back, r) {
		t.Fatalf("%+v became %+v", r, back)
	}
}

func TestRoundTrip(t *testing.T) { rapid.Check(t, checkRoundTrip) }

func FuzzEncode(f *testing.F) { f.Fuzz(rapid.MakeFuzz(checkRoundTrip)) }

// A journal behaves like a map after any sequence of writes, removals and restarts.
func TestJournalModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "")
		check.Must(t, err)
		j, err := Open(dir, Options{})
		check.Must(t, err)
		defer func() { check.Must(t, j.Close()) }()
		model := map[string]record.Record{}
		id := rapid.SampledFrom([]string{"a", "b", "c", "d.e_f-g"})
		rt.Repeat(map[string]func(*rapid.T){
			"write": func(rt *rapid.T) {
				r := sample(id.Draw(rt, "id"))
				r.Generation = rapid.IntRange(0, 9).Draw(rt, "generation")
				r.Node = rapid.String().Draw(rt, "node") + strconv.Itoa(r.Generation)
				check.Must(t, j.Write(r))
				model[r.ContainerID] = r
			},
			"remove": func(rt *rapid.T) {
				containerID := id.Draw(rt, "id")
				remove := rapid.SampledFrom([]func(string) error{j.Remove, j.RemoveSoon}).Draw(rt, "removal")
				check.Must(t, remove(containerID))
				delete(model, containerID)
			},
			"restart": func(*rapid.T) {
				check.Must(t, j.Close())
				j, err = Open(dir, Options{})
				check.Must(t, err)
			},
			"": func(rt *rapid.T) {
				l, err := j.Load()
				check.Must(t, err)
				got := map[string]record.Record{}
				for _, r := range l.Records {
					got[r.ContainerID] = r
				}
				if !reflect.DeepEqual(got, model) || len(l.Problems)+len(l.FutureVersions) != 0 {
					rt.Fatalf("loaded %+v, want %+v", l, model)
				}
				if !slices.IsSortedFunc(l.Records, func(a, b record.Record) int { return strings.Compare(a.ContainerID, b.ContainerID) }) {
					rt.Fatalf("not sorted by container ID: %+v", l.Records)
				}
			},
		})
	})
}
