package journal

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

const (
	// version is raised when an older program would misread a record, but not for a field
	// that an older program may ignore. docs/reference/versioning.md lists the versions;
	// testdata/versions has journals of each.
	version = 2

	// maxFile bounds what Load reads into memory, in bytes. A record has a few kilobytes, and
	// more with several invocations of large configurations.
	maxFile = 16 << 20
)

// envelope is the content of a file: {"version":2,"sha256":"…","record":{…}} and a line feed.
// The checksum is that of the bytes of "record". Spaces before the line feed, with which builds of
// version 1 padded files, are accepted.
type envelope struct {
	Version int             `json:"version"`
	SHA256  string          `json:"sha256"`
	Record  json.RawMessage `json:"record"`
}

// futureVersionError is an envelope of an unknown, newer version.
type futureVersionError struct {
	version     int
	owner, pool string // empty if unknown
}

func (e *futureVersionError) Error() string {
	return fmt.Sprintf("version %d; this program supports versions up to %d", e.version, version)
}

// encode returns the file of a record. It ensures that decode returns the same record, because
// a file that Load would refuse must never be written.
func (j *Journal) encode(r record.Record) ([]byte, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	if err := j.checkMachine(r); err != nil {
		return nil, err
	}
	raw, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	data := seal(prefix, raw)
	if len(data) > maxFile {
		return nil, fmt.Errorf("record of %d bytes; expected at most %d", len(data), maxFile)
	}
	if !roundTripSafe(r, raw) {
		err = checkRoundTrip(raw)
	}
	return data, err
}

// decode returns the valid record of a file, or why it has none; *futureVersionError for an
// envelope of a newer version.
func decode(data []byte) (record.Record, error) {
	if raw, ok := unseal(prefix, data); ok {
		return parseRecord(raw)
	}
	if raw, ok := unseal(prefix1, data); ok {
		return validRecord(record.UnmarshalVersion1(raw))
	}
	return record.Record{}, envelopeError(data)
}

// parseRecord returns the valid record of its JSON in the current version.
func parseRecord(raw []byte) (record.Record, error) {
	var r record.Record
	err := json.Unmarshal(raw, &r)
	return validRecord(r, err)
}

// validRecord returns a record that was read without an error, if it is valid.
func validRecord(r record.Record, err error) (record.Record, error) {
	if err != nil {
		return record.Record{}, fmt.Errorf("the record cannot be read: %w", err)
	}
	if err := r.Validate(); err != nil {
		return record.Record{}, err
	}
	return r, nil
}

// envelopeError returns why a file is not an envelope of a supported version.
func envelopeError(data []byte) error {
	if len(data) == 0 {
		return errors.New("empty file")
	}
	var e envelope
	if err := json.Unmarshal(data, &e); err != nil {
		return fmt.Errorf("not an envelope: %w", err)
	}
	if e.Version > version {
		return newFutureVersionError(e)
	}
	if e.Version < 1 {
		return fmt.Errorf("version %d; expected 1 to %d", e.Version, version)
	}
	return errors.New("damaged: checksum or form does not match the record")
}

// The parts of a sealed envelope around checksum and record; prefix1 is the prefix of version 1.
const (
	prefix  = `{"version":2,"sha256":"`
	prefix1 = `{"version":1,"sha256":"`
	middle  = `","record":`
	closing = '}'
	newline = '\n'
)

// seal puts the JSON of a record into an envelope of the version that has the prefix.
func seal(prefix string, raw []byte) []byte {
	sum := sha256.Sum256(raw)
	data := make([]byte, 0, len(prefix)+2*len(sum)+len(middle)+len(raw)+2)
	data = hex.AppendEncode(append(data, prefix...), sum[:])
	data = append(append(data, middle...), raw...)
	return append(data, closing, newline)
}

// unseal returns the JSON of a record if data is exactly what seal returns for prefix and record,
// apart from spaces at its end. JSON readers accept variants (letter case of keys, repeated keys, white
// space), but a damaged envelope must not pass because its record is intact.
func unseal(prefix string, data []byte) (raw []byte, ok bool) {
	before := len(prefix) + 2*sha256.Size + len(middle)
	text, ended := bytes.CutSuffix(data, []byte{newline})
	text = bytes.TrimRight(text, " ")
	if !ended || len(text) <= before {
		return nil, false
	}
	raw = text[before : len(text)-1]
	return raw, bytes.Equal(seal(prefix, raw), append(text[:len(text):len(text)], newline))
}

// newFutureVersionError reads the names that a newer version probably still uses.
func newFutureVersionError(e envelope) *futureVersionError {
	var names struct {
		Owner string `json:"owner"`
		Pool  string `json:"pool"`
	}
	if json.Unmarshal(e.Record, &names) != nil {
		return &futureVersionError{version: e.Version}
	}
	return &futureVersionError{version: e.Version, owner: names.Owner, pool: names.Pool}
}

// checkMachine refuses a record of another machine.
func (j *Journal) checkMachine(r record.Record) error {
	if j.machineID == "" || r.MachineID == "" || r.MachineID == j.machineID {
		return nil
	}
	return fmt.Errorf("written on another machine (machine ID %s; expected %s)", r.MachineID, j.machineID)
}
