package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

const (
	// replacementEscape is what json.Marshal makes of bytes that are not UTF-8. A configuration
	// may contain it in its own texts, too.
	replacementEscape = `\ufffd`

	// shallowLength is a length below which JSON cannot be nested deeper than json.Unmarshal
	// accepts: each of the 10,000 levels takes at least one bracket. json.Marshal counts the
	// levels of a configuration without those of the record around it.
	shallowLength = 10_000
)

// roundTripSafe reports whether json.Unmarshal certainly returns the valid record r from its
// JSON, raw; otherwise checkRoundTrip must try it, which would be most of the CPU time of a write
// (docs/reference/performance.md).
//
// A record has only texts, numbers, booleans, lists of them and the four types below; a test
// enumerates them. UTF-8 texts, numbers and booleans are read back unchanged. JSON that is
// embedded (a configuration, a plugin's result) was made compact by json.Marshal and is copied
// unchanged from then on. Empty fields are omitted, or come back as nil, and are irrelevant to
// Validate.
func roundTripSafe(r record.Record, raw []byte) bool {
	if len(raw) >= shallowLength || bytes.Contains(raw, []byte(replacementEscape)) {
		return false
	}
	if !wholeMinuteZone(r.Created) || !wholeMinuteZone(r.Changed) || !wholeMinuteZone(r.ReleaseAt) || !wholeMinuteZone(r.LateDel.Until) ||
		r.Expiration != nil && !wholeMinuteZone(r.Expiration.Deadline) {
		return false
	}
	for _, a := range r.Result.Addresses {
		// The zone of an IPv6 address may be any text. A missing gateway is the zero Addr.
		if !a.Prefix.IsValid() || a.Gateway.Zone() != "" {
			return false
		}
	}
	for i := range r.Invocations {
		c := &r.Invocations[i]
		if !wholeMinuteZone(c.AddActsUntil) {
			return false
		}
		for _, p := range c.Requested {
			if !p.IsValid() {
				return false
			}
		}
	}
	return true
}

// wholeMinuteZone reports whether RFC 3339 can express the time's zone, which has no seconds.
// Zones of the nineteenth century have.
func wholeMinuteZone(t time.Time) bool {
	_, offset := t.Zone()
	return offset%60 == 0
}

// checkRoundTrip returns why the JSON of a record does not result in that record again.
func checkRoundTrip(raw []byte) error {
	back, err := parseRecord(raw)
	if err != nil {
		return err
	}
	if again, err := json.Marshal(back); err != nil || !bytes.Equal(raw, again) {
		return errors.New("the record would change when it is read back; its texts must be valid UTF-8")
	}
	return nil
}
