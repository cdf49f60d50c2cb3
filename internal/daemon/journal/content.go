package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unique"

	"go.etcd.io/bbolt"

	"github.com/delegated-ipam/delegated-ipam/internal/boltfile"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

const (
	// format is raised when an older program would misread a file, but not for a field that it may
	// ignore (docs/reference/versioning.md). Formats 1 to 3 had a file for each record, and no release.
	format = 4

	// maxRecord bounds the JSON of a record, in bytes. It has a few kilobytes, and more with large configurations.
	maxRecord = 8 << 20

	// sumSize is the length of a checksum in a value: eight hexadecimal digits.
	sumSize = 8
)

// The buckets of a file, and the keys in the bucket of metadata.
var (
	recordsBucket, metadataBucket = []byte("records"), []byte("metadata")
	metadataKey, totalsKey        = []byte("file"), []byte("totals")
)

// Metadata describes a file and the process that has made it.
type Metadata struct {
	Format    int    `json:"format"`
	MachineID string `json:"machineID,omitempty"`
	BootID    string `json:"bootID,omitempty"`
	Node      string `json:"node,omitempty"`
}

// totals show that a damaged page lacks records, or has older ones: their number, and the sum of their checksums.
type totals struct {
	Records int    `json:"records"`
	Sum     uint64 `json:"sum"`
}

// add counts n more records of a value; -1 for one less. There is none without a value.
func (t *totals) add(value []byte, n int) {
	if value != nil {
		t.Records += n
		t.Sum += uint64(n) * sumOf(value)
	}
}

func totalsOf(records []boltfile.Entry) (t totals) {
	for _, e := range records {
		t.add(e.Value, 1)
	}
	return t
}

// key returns the key of a record: its pool and its owner.
func key(pool, owner string) []byte { return []byte(pool + "\x00" + owner) }

// seal returns the value for a key: its head and the text.
func seal(key, text []byte) []byte { return append(head(key, text), text...) }

// head returns what precedes a text: the CRC-32C of key and text, and a space.
func head(key, text []byte) []byte {
	table := crc32.MakeTable(crc32.Castagnoli)
	return fmt.Appendf(nil, "%08x ", crc32.Update(crc32.Checksum(key, table), table, text))
}

// unseal returns the text in the value of an entry.
func unseal(e boltfile.Entry) ([]byte, error) {
	if len(e.Value) <= sumSize || !bytes.HasPrefix(e.Value, head(e.Key, e.Value[sumSize+1:])) {
		return nil, boltfile.Damaged("the checksum does not match")
	}
	return e.Value[sumSize+1:], nil
}

// sumOf returns the checksum in a value; 0 if it has none.
func sumOf(value []byte) uint64 {
	sum, _ := strconv.ParseUint(string(value[:min(sumSize, len(value))]), 16, 32)
	return sum
}

// encode returns the JSON of a record. One that Load would refuse, or return changed, must never be written: what may be
// one is decoded first. To decode each would take four times as long as everything else here.
func encode(r attachment.Record) ([]byte, error) {
	raw, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	if len(raw) > maxRecord {
		return nil, fmt.Errorf("record of %d bytes; expected at most %d", len(raw), maxRecord)
	}
	if plain(raw) {
		return raw, r.Validate()
	}
	back, err := decode(raw)
	if err != nil {
		return nil, err
	}
	if again, err := json.Marshal(back); err != nil || !bytes.Equal(raw, again) {
		return nil, errors.New("the record would change when it is read back; its texts must be valid UTF-8")
	}
	return raw, nil
}

// plain reports whether JSON of a record certainly decodes to it: it has no text that stands for invalid UTF-8 or an
// invalid prefix, no time outside UTC, whose zone may have seconds, and cannot be nested too deeply.
func plain(raw []byte) bool {
	for i, c := range raw {
		if c == ':' && i >= 3 && i+3 < len(raw) && raw[i+3] == '"' && (raw[i-3] == '+' || raw[i-3] == '-') {
			return false
		}
	}
	const depth = 10000 // at which encoding/json stops
	return !bytes.Contains(raw, []byte(`\ufffd`)) && !bytes.Contains(raw, []byte("invalid")) &&
		bytes.Count(raw, []byte("{"))+bytes.Count(raw, []byte("[")) < depth
}

func decode(raw []byte) (r attachment.Record, err error) {
	if err := json.Unmarshal(raw, &r); err != nil {
		return attachment.Record{}, fmt.Errorf("the record cannot be read: %w", err)
	}
	return r, r.Validate()
}

// share replaces parts of a record by equal ones of others, so that memory has each once. Most records have the
// configuration and the profile of the one before, last.
func share(r *attachment.Record, last *call.Invocation) {
	texts := []*string{&r.ContainerID, &r.Pool, &r.Node, &r.Network, &r.BootID}
	for i := range r.Invocations {
		inv := &r.Invocations[i]
		texts = append(texts, &inv.ContainerID, &inv.Network, &inv.CNIVersion, &inv.Plugin, &inv.Binary, &inv.Path, &inv.IfName, &inv.NetNS)
		if bytes.Equal(inv.Config, last.Config) {
			inv.Config = last.Config
		}
		if reflect.DeepEqual(inv.Profile, last.Profile) {
			inv.Profile = last.Profile
		}
		*last = *inv
	}
	for _, text := range texts {
		*text = unique.Make(*text).Value()
	}
}

// recordOf returns the record of an entry, if it is what Write has written.
func recordOf(e boltfile.Entry) (r attachment.Record, err error) {
	raw, err := unseal(e)
	if err == nil {
		r, err = decode(raw)
	}
	if err == nil && !bytes.Equal(e.Key, key(r.Pool, r.Owner)) {
		err = boltfile.Damaged("it is the record of owner %q in pool %q", r.Owner, r.Pool)
	}
	return r, err
}

// content is what a file has.
type content struct {
	Metadata
	records []boltfile.Entry
}

// checkDefaultPool refuses the name of another pool that has records: under that name no change would reach them.
func (c content) checkDefaultPool(name string) error {
	of := func(e boltfile.Entry) bool { return bytes.HasPrefix(e.Key, key(name, "")) }
	if name == storedDefaultPool || !slices.ContainsFunc(c.records, of) {
		return nil
	}
	return fmt.Errorf("it has attachments of pool %q, which was not the default pool: start with the earlier --ipam-default-ip-pool and release them, or choose another name", name)
}

// intact reports whether the checksum of every record matches.
func (c content) intact() bool {
	return !slices.ContainsFunc(c.records, func(e boltfile.Entry) bool { _, err := unseal(e); return err != nil })
}

// decode returns the records, and removes the entries of problems. defaultPool is the name of that pool.
func (c *content) decode(defaultPool string) (l Loaded) {
	var last call.Invocation
	l.Records = slices.Grow(l.Records, len(c.records))
	c.records = slices.DeleteFunc(c.records, func(e boltfile.Entry) bool {
		r, err := recordOf(e)
		if err != nil {
			pool, owner, _ := strings.Cut(string(e.Key), "\x00")
			l.Problems = append(l.Problems, Problem{pool, owner, err, e.Value})
			return true
		}
		if r.Pool == storedDefaultPool {
			r.Pool = defaultPool
		}
		share(&r, &last)
		l.Records = append(l.Records, r)
		return false
	})
	return l
}

// readFile reads a file in a directory; the content is empty if there is none. The error is a boltfile.DamageError if
// the file as a whole is not what the program has written.
func readFile(in *os.Root, name string) (c content, err error) {
	buckets, err := boltfile.ReadIn(in, name)
	if err == nil {
		return contentOf(buckets)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return c, err
}

func contentOf(buckets map[string][]boltfile.Entry) (c content, err error) {
	c.records = buckets[string(recordsBucket)]
	var t totals
	known := map[string]any{string(metadataKey): &c.Metadata, string(totalsKey): &t}
	for _, e := range buckets[string(metadataBucket)] {
		text, err := unseal(e)
		if into := known[string(e.Key)]; err == nil && into != nil {
			err = json.Unmarshal(text, into)
		}
		if err != nil {
			return c, boltfile.Damaged("%q of the metadata: %v", e.Key, err)
		}
	}
	if c.Format > format {
		return c, fmt.Errorf("format %d; this program supports formats up to %d: start the version that has written it", c.Format, format)
	}
	// A checksum that is damaged itself makes the sum wrong.
	got := totalsOf(c.records)
	if c.Format < format || got.Records != t.Records || got != t && c.intact() {
		return c, boltfile.Damaged("format %d with %d of %d records, or older ones; expected format %d", c.Format, got.Records, t.Records, format)
	}
	return c, nil
}

// fillSize is how many records a transaction writes into a new file.
const fillSize = 1000

// fill returns the transactions that write everything into a new file. The first has the totals, so that a file without
// the others is known as damaged.
func (c content) fill() []func(*bbolt.Tx) error {
	c.Format = format
	steps := []func(*bbolt.Tx) error{func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucket(recordsBucket)
		metadata, metadataErr := tx.CreateBucket(metadataBucket)
		if err := errors.Join(err, metadataErr); err != nil {
			return err
		}
		return errors.Join(put(metadata, metadataKey, c.Metadata), put(metadata, totalsKey, totalsOf(c.records)))
	}}
	for some := range slices.Chunk(c.records, fillSize) {
		steps = append(steps, func(tx *bbolt.Tx) error {
			records := tx.Bucket(recordsBucket)
			records.FillPercent = 0.8 // records grow
			for _, e := range some {
				if err := records.Put(e.Key, e.Value); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return steps
}

func put(b *bbolt.Bucket, key []byte, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return b.Put(key, seal(key, text))
}
