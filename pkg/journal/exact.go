package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"time"

	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

const (
	// replaced is what json.Marshal makes of bytes that are no UTF-8. It escapes
	// nothing else so, but a configuration may have it in a text of its own.
	replaced = `\ufffd`

	// shallow is a length below which no JSON is nested deeper than json.Unmarshal
	// reads: each of the 10,000 levels takes at least a bracket. json.Marshal
	// counts the levels of a configuration without those of the record around it.
	shallow = 10_000
)

// exact tells whether json.Unmarshal certainly makes a valid record of raw again,
// whose JSON is raw: raw is that of r, which is valid. False means that it has to be
// tried.
//
// It holds because a record has nothing but texts, numbers, truth values, lists of
// such, and the four types below; a test lists them. A text that is UTF-8, a number
// and a truth value come back as they were. json.Marshal has made JSON that is
// copied (a configuration, a plugin's result) compact, which is how it is copied
// back and forth from then on. What is left out because it is empty, or comes
// back as nil, counts for nothing in Validate, and is left out again.
func exact(r record.Record, raw []byte) bool {
	if len(raw) >= shallow || bytes.Contains(raw, []byte(replaced)) {
		return false
	}
	if !wholeZone(r.Created) || !wholeZone(r.Changed) || !wholeZone(r.ReleaseAt) || !wholeZone(r.LateDel.Until) ||
		r.Expiration != nil && !wholeZone(r.Expiration.Deadline) {
		return false
	}
	for _, a := range r.Result.Addresses {
		// A zone may be any text. The gateway is the zero Addr where there is none.
		if !a.Prefix.IsValid() || a.Gateway.Zone() != "" {
			return false
		}
	}
	for i := range r.Invocations {
		c := &r.Invocations[i]
		if !wholeZone(c.AddActsUntil) {
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

// wholeZone tells whether a time is in a zone that RFC 3339 can write. It has no
// seconds, which zones of the nineteenth century have.
func wholeZone(t time.Time) bool {
	_, offset := t.Zone()
	return offset%60 == 0
}

// readBack returns why the JSON of a record is not read as that record again.
func readBack(raw []byte) error {
	back, err := read(raw)
	if err != nil {
		return err
	}
	if again, err := json.Marshal(back); err != nil || !bytes.Equal(raw, again) {
		return errors.New("it would not be read back unchanged; its texts must be valid UTF-8")
	}
	return nil
}
