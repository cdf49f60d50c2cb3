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
	// that an older program may ignore (docs/reference/versioning.md). No release had a lower one.
	version = 3

	// maxFile bounds what Load reads into memory, in bytes. A record has a few kilobytes, and
	// more with several invocations of large configurations.
	maxFile = 16 << 20
	// maxRecord fits, with its envelope, into each half of a file.
	maxRecord = maxFile/2 - 2*blockSize

	// blockSize is the size of a half, or a part of it, in bytes: no disk writes less than a sector,
	// so a write to a half leaves the other one as it is, and no page is smaller, so a kill does not
	// interrupt a write of one block.
	blockSize = 4096
)

// envelope is the content of a half: {"version":3,"sha256":"…","sequence":1,"bootID":"…","record":{…}}
// and spaces, with a line feed at the end. The checksum covers the bytes from "sequence" to the last brace.
type envelope struct {
	Version int    `json:"version"`
	SHA256  string `json:"sha256"`
	// Sequence counts the writes to the file, from 1. The half with the higher one is the newest.
	Sequence uint64 `json:"sequence"`
	// BootID is that of the boot of the write.
	BootID string          `json:"bootID"`
	Record json.RawMessage `json:"record"`
}

// futureVersionError is an envelope of an unknown, newer version.
type futureVersionError struct {
	version     int
	owner, pool string // empty if unknown
}

func (e *futureVersionError) Error() string {
	return fmt.Sprintf("version %d; this program supports versions up to %d", e.version, version)
}

// encode returns the JSON of a record. It decodes what it has encoded, because a record that Load
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
	if len(raw) > maxRecord {
		return nil, fmt.Errorf("record of %d bytes; expected at most %d", len(raw), maxRecord)
	}
	back, err := decodeRecord(raw)
	if err != nil {
		return nil, err
	}
	if again, err := json.Marshal(back); err != nil || !bytes.Equal(raw, again) {
		return nil, errors.New("the record would change when it is read back; its texts must be valid UTF-8")
	}
	return raw, nil
}

// decode returns the newest valid record of a file, or why it has none; *futureVersionError for an
// envelope of a newer version.
func decode(data []byte, bootID string) (record.Record, error) {
	e, ok := newest(data, bootID)
	if !ok {
		return record.Record{}, envelopeError(data)
	}
	return decodeRecord(e.Record)
}

func decodeRecord(raw []byte) (r record.Record, err error) {
	if err := json.Unmarshal(raw, &r); err != nil {
		return record.Record{}, fmt.Errorf("the record cannot be read: %w", err)
	}
	if err := r.Validate(); err != nil {
		return record.Record{}, err
	}
	return r, nil
}

// newest returns the newest envelope of a file of two halves. If a half is damaged, a power loss may
// have interrupted its write, which then never returned: the other half is the record. Since one process
// writes both halves, that is possible only if the other one is of an earlier boot.
func newest(data []byte, bootID string) (e envelope, ok bool) {
	size := len(data) / 2
	if size == 0 || len(data)%(2*blockSize) != 0 {
		return e, false
	}
	first, firstOK := unseal(data[:size])
	if text, padded := line(data[size:]); firstOK && padded && len(text) == 0 { // blank
		return first, true
	}
	second, secondOK := unseal(data[size:])
	switch {
	case firstOK && secondOK && second.Sequence > first.Sequence:
		return second, true
	case firstOK:
		return first, secondOK || first.BootID != bootID
	default:
		return second, secondOK && second.BootID != bootID
	}
}

// envelopeError returns why a file is not an envelope of a supported version.
func envelopeError(data []byte) error {
	if len(data) == 0 {
		return errors.New("empty file")
	}
	var e envelope
	if err := json.NewDecoder(bytes.NewReader(data)).Decode(&e); err != nil {
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

// seal returns the half with the JSON of a record.
func (j *Journal) seal(sequence uint64, raw []byte) []byte {
	return envelope{Sequence: sequence, BootID: j.options.BootID, Record: raw}.seal()
}

// beforeSum and afterSum surround the checksum, beforeRecord precedes the record.
const (
	beforeSum, afterSum = `{"version":3,"sha256":"`, `",`
	beforeRecord        = `,"record":`
)

func (e envelope) seal() []byte {
	bootID, _ := json.Marshal(e.BootID) // never fails for a string
	summed := fmt.Appendf(nil, `"sequence":%d,"bootID":%s%s%s}`, e.Sequence, bootID, beforeRecord, e.Record)
	data := fmt.Appendf(nil, `%s%x%s%s`, beforeSum, sha256.Sum256(summed), afterSum, summed)
	half := blank((len(data)/blockSize + 1) * blockSize)
	copy(half, data)
	return half
}

// unseal returns the envelope of a half if the half is exactly what seal returns for it: JSON readers accept
// variants (letter case of keys, repeated keys, white space), but a damaged envelope must not pass because
// its record is intact.
func unseal(half []byte) (e envelope, ok bool) {
	text, padded := line(half)
	rest, begins := bytes.CutPrefix(text, []byte(beforeSum))
	sum, summed, ok := bytes.Cut(rest, []byte(afterSum))
	if expected := sha256.Sum256(summed); !padded || !begins || !ok || !bytes.Equal(sum, hex.AppendEncode(nil, expected[:])) {
		return e, false
	}
	head, record, ok := bytes.Cut(bytes.TrimSuffix(summed, []byte("}")), []byte(beforeRecord))
	e.Record = record
	return e, ok && json.Unmarshal(fmt.Appendf(nil, "{%s}", head), &e) == nil
}

// line returns what precedes the spaces and the line feed at the end of a half.
func line(half []byte) (text []byte, ok bool) {
	spaces, ok := bytes.CutSuffix(half, []byte("\n"))
	return bytes.TrimRight(spaces, " "), ok
}

// blank returns a half without a record.
func blank(size int) []byte {
	half := bytes.Repeat([]byte{' '}, size)
	half[size-1] = '\n'
	return half
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
