package journal

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

const (
	// version is raised when an older program would misread a record. A field
	// that an older program may ignore does not raise it.
	version = 1

	// maxFile bounds what Load reads into memory, in bytes. A record has a few
	// kilobytes; one with several contexts of large configurations has more.
	maxFile = 16 << 20
)

// envelope is the content of a file: {"version":1,"sha256":"…","record":{…}} and a line
// feed. The checksum is that of the bytes of "record" as they stand. Spaces before the
// line feed, with which earlier builds filled files up, are read as well.
type envelope struct {
	Version int             `json:"version"`
	SHA256  string          `json:"sha256"`
	Record  json.RawMessage `json:"record"`
}

// newerError is an envelope of a version that we do not know.
type newerError struct {
	version     int
	owner, pool string
}

func (e *newerError) Error() string {
	return fmt.Sprintf("version %d; this program knows versions up to %d", e.version, version)
}

// encode returns the file of a record, having made sure that decode gives the
// same record back: a file that Load would refuse must never be written.
func (j *Journal) encode(r record.Record) ([]byte, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	if err := j.here(r); err != nil {
		return nil, err
	}
	raw, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	data := seal(raw)
	if len(data) > maxFile {
		return nil, fmt.Errorf("it has %d bytes; at most %d are kept", len(data), maxFile)
	}
	if !exact(r, raw) {
		err = readBack(raw)
	}
	return data, err
}

// decode returns the record of a file, or why it has none; *newerError for an
// envelope of a newer version. Whatever it returns without an error is valid.
func decode(data []byte) (record.Record, error) {
	raw, ok := unseal(data)
	if !ok {
		return record.Record{}, whyNot(data)
	}
	return read(raw)
}

// read returns the valid record that raw is the JSON of.
func read(raw []byte) (record.Record, error) {
	var r record.Record
	if err := json.Unmarshal(raw, &r); err != nil {
		return record.Record{}, fmt.Errorf("its record cannot be read: %w", err)
	}
	if err := r.Validate(); err != nil {
		return record.Record{}, err
	}
	return r, nil
}

// whyNot says what is wrong with a file that has no envelope of today's version.
func whyNot(data []byte) error {
	if len(data) == 0 {
		return errors.New("it is empty")
	}
	var e envelope
	if err := json.Unmarshal(data, &e); err != nil {
		return fmt.Errorf("it is no envelope: %w", err)
	}
	if e.Version > version {
		return newer(e)
	}
	if e.Version != version {
		return fmt.Errorf("its version is %d; expected 1 to %d", e.Version, version)
	}
	return errors.New("it is damaged: checksum or form do not fit its record")
}

// The parts of a sealed envelope around checksum and record.
const (
	head  = `{"version":1,"sha256":"`
	waist = `","record":`
	foot  = '}'
	end   = '\n'
)

// seal puts the bytes of a record into an envelope of today's version.
func seal(raw []byte) []byte {
	sum := sha256.Sum256(raw)
	data := make([]byte, 0, len(head)+2*len(sum)+len(waist)+len(raw)+2)
	data = hex.AppendEncode(append(data, head...), sum[:])
	data = append(append(data, waist...), raw...)
	return append(data, foot, end)
}

// unseal returns the bytes of a record, if data is exactly what seal makes of
// them, apart from spaces at its end. JSON readers forgive much (letter case of keys, keys
// twice, white space); a damaged envelope must not pass because its record happens to
// be whole.
func unseal(data []byte) (raw []byte, ok bool) {
	const before = len(head) + 2*sha256.Size + len(waist)
	text, ended := bytes.CutSuffix(data, []byte{end})
	text = bytes.TrimRight(text, " ")
	if !ended || len(text) <= before {
		return nil, false
	}
	raw = text[before : len(text)-1]
	return raw, bytes.Equal(seal(raw), append(text[:len(text):len(text)], end))
}

// newer reads what a newer version most likely still calls by the same names.
func newer(e envelope) *newerError {
	var who struct {
		Owner string `json:"owner"`
		Pool  string `json:"pool"`
	}
	// A record of another shape leaves them empty: nothing more can be known.
	if json.Unmarshal(e.Record, &who) != nil {
		return &newerError{version: e.Version}
	}
	return &newerError{version: e.Version, owner: who.Owner, pool: who.Pool}
}

// here refuses a record of another machine.
func (j *Journal) here(r record.Record) error {
	if j.machineID == "" || r.MachineID == "" || r.MachineID == j.machineID {
		return nil
	}
	return fmt.Errorf("it was written on another machine (machine ID %s; this one is %s)", r.MachineID, j.machineID)
}
