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
	// that an older program may ignore (docs/reference/versioning.md). No release had version 1.
	version = 2

	// maxFile bounds what Load reads into memory, in bytes. A record has a few kilobytes, and
	// more with several invocations of large configurations.
	maxFile = 16 << 20
)

// envelope is the content of a file: {"version":2,"sha256":"…","record":{…}} and a line feed.
// The checksum covers the bytes of "record".
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

// encode returns the file of a record. It decodes what it has encoded, because a file that Load
// would refuse must never be written.
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
	data := seal(raw)
	if len(data) > maxFile {
		return nil, fmt.Errorf("record of %d bytes; expected at most %d", len(data), maxFile)
	}
	back, err := decode(data)
	if err != nil {
		return nil, err
	}
	if again, err := json.Marshal(back); err != nil || !bytes.Equal(raw, again) {
		return nil, errors.New("the record would change when it is read back; its texts must be valid UTF-8")
	}
	return data, nil
}

// decode returns the valid record of a file, or why it has none; *futureVersionError for an
// envelope of a newer version.
func decode(data []byte) (record.Record, error) {
	raw, ok := unseal(data)
	if !ok {
		return record.Record{}, envelopeError(data)
	}
	var r record.Record
	if err := json.Unmarshal(raw, &r); err != nil {
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
	if e.Version < version {
		return fmt.Errorf("version %d; expected %d", e.Version, version)
	}
	return errors.New("damaged: checksum or form does not match the record")
}

// The parts of a sealed envelope around checksum and record.
const (
	prefix = `{"version":2,"sha256":"`
	middle = `","record":`
	suffix = "}\n"
)

// seal puts the JSON of a record into an envelope.
func seal(raw []byte) []byte {
	sum := sha256.Sum256(raw)
	data := make([]byte, 0, len(prefix)+2*len(sum)+len(middle)+len(raw)+len(suffix))
	data = hex.AppendEncode(append(data, prefix...), sum[:])
	data = append(append(data, middle...), raw...)
	return append(data, suffix...)
}

// unseal returns the JSON of a record if data is exactly what seal returns for it. JSON readers accept
// variants (letter case of keys, repeated keys, white space), but a damaged envelope must not pass
// because its record is intact.
func unseal(data []byte) (raw []byte, ok bool) {
	const before = len(prefix) + 2*sha256.Size + len(middle)
	if len(data) < before+len(suffix) {
		return nil, false
	}
	raw = data[before : len(data)-len(suffix)]
	return raw, bytes.Equal(seal(raw), data)
}

// newFutureVersionError reads the names that a newer version probably still uses.
func newFutureVersionError(e envelope) *futureVersionError {
	var names struct {
		Owner string `json:"owner"`
		Pool  string `json:"pool"`
	}
	if json.Unmarshal(e.Record, &names) != nil {
		names.Owner, names.Pool = "", ""
	}
	return &futureVersionError{version: e.Version, owner: names.Owner, pool: names.Pool}
}

// checkMachine refuses a record of another machine.
func (j *Journal) checkMachine(r record.Record) error {
	if own := j.options.MachineID; own != "" && r.MachineID != "" && r.MachineID != own {
		return fmt.Errorf("written on another machine (machine ID %s; expected %s)", r.MachineID, own)
	}
	return nil
}
