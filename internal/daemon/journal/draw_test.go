package journal

import (
	"encoding/json"
	"net/netip"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
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
func drawRecord() *rapid.Generator[attachment.Record] {
	return rapid.Custom(func(t *rapid.T) attachment.Record {
		r := sample("a")
		r.Generation = rapid.Int().Draw(t, "generation")
		for _, text := range []*string{&r.Owner, &r.Pool, &r.Node, &r.Network, &r.BootID, &r.Result.MasterMAC, &r.Expiration.UUID} {
			if rapid.Bool().Draw(t, "changed") {
				*text = drawText().Draw(t, "text")
			}
		}
		r.State = rapid.SampledFrom([]attachment.State{attachment.Adding, attachment.Held, attachment.Cooldown, attachment.Releasing, attachment.Tombstone}).Draw(t, "state")
		r.Result.Addresses = rapid.OneOf(rapid.Just(r.Result.Addresses), rapid.SliceOfN(rapid.Custom(func(t *rapid.T) call.Address {
			return call.Address{Prefix: drawPrefix().Draw(t, "prefix"), Gateway: drawAddr().Draw(t, "gateway")}
		}), 0, 2)).Draw(t, "addresses")
		r.Result.Raw = rapid.OneOf(rapid.Just(r.Result.Raw), drawJSON()).Draw(t, "raw")
		r.Claims = rapid.SampledFrom([][]attachment.Family{nil, {}, r.Claims}).Draw(t, "claims")
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
