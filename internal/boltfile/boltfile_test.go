package boltfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// write returns the file that bbolt makes of entries, each in a separate transaction, and some twice.
func write(t *testing.T, buckets map[string][]Entry) []byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), "db")
	db, err := bbolt.Open(file, 0o600, &bbolt.Options{PageSize: PageSize, NoSync: true})
	check.Must(t, err)
	for name, entries := range buckets {
		for i, e := range append(slices.Clone(entries), entries...) {
			check.Must(t, db.Update(func(tx *bbolt.Tx) error {
				b, err := tx.CreateBucketIfNotExists([]byte(name))
				if err != nil {
					return err
				}
				if i%7 == 3 {
					return errors.Join(b.Put([]byte("removed"), make([]byte, 5000)), b.Put(e.Key, e.Value), b.Delete([]byte("removed")))
				}
				return b.Put(e.Key, e.Value)
			}))
		}
	}
	check.Must(t, db.Close())
	data, err := os.ReadFile(file)
	check.Must(t, err)
	return data
}

// entries returns entries with values of a size.
func entries(count, size int) (all []Entry) {
	for i := range count {
		all = append(all, Entry{fmt.Appendf(nil, "key-%05d", i), bytes.Repeat([]byte{byte(i)}, size)})
	}
	return all
}

func TestRead(t *testing.T) {
	for name, want := range map[string]map[string][]Entry{
		"inline bucket":         {"a": entries(2, 10)},
		"one page":              {"a": entries(5, 500)},
		"many pages":            {"a": entries(2000, 1000), "b": entries(3, 10), "c": entries(400, 3000)},
		"values of many pages":  {"a": entries(5, 100_000)},
		"values without a byte": {"a": entries(300, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Read(bytes.NewReader(write(t, want)))
			check.Must(t, err)
			check.Equal(t, "buckets", len(got), len(want))
			for bucket, all := range want {
				equal := slices.EqualFunc(got[bucket], all, func(a, b Entry) bool { return bytes.Equal(a.Key, b.Key) && bytes.Equal(a.Value, b.Value) })
				check.True(t, equal, "bucket %s has %d entries; want %d, and their values", bucket, len(got[bucket]), len(all))
			}
		})
	}
}

// bbolt itself walks such a file until the memory ends, or reads out of its mapping.
func TestReadDamaged(t *testing.T) {
	whole := write(t, map[string][]Entry{"a": entries(2000, 1000)})
	newer := 0
	if number := func(page int) uint64 { return binary.NativeEndian.Uint64(whole[page*PageSize+64:]) }; number(1) > number(0) {
		newer = 1
	}
	pageOf := func(kind uint16) int {
		for at := 2 * PageSize; at < len(whole); at += PageSize {
			if binary.NativeEndian.Uint16(whole[at+8:]) == kind && binary.NativeEndian.Uint64(whole[at:]) == uint64(at/PageSize) {
				return at
			}
		}
		t.Fatalf("no page of type %d", kind)
		return 0
	}
	all := func(data []byte, kind uint16, change func(page []byte)) {
		for at := 2 * PageSize; at < len(data); at += PageSize {
			if binary.NativeEndian.Uint16(data[at+8:]) == kind {
				change(data[at : at+PageSize])
			}
		}
	}
	put16, put32, put64 := binary.NativeEndian.PutUint16, binary.NativeEndian.PutUint32, binary.NativeEndian.PutUint64
	for name, damage := range map[string]func(data []byte) []byte{
		"empty":                   func([]byte) []byte { return nil },
		"cut off in a meta page":  func(data []byte) []byte { return data[:PageSize+1] },
		"cut off after the metas": func(data []byte) []byte { return data[:2*PageSize] },
		"text":                    func([]byte) []byte { return bytes.Repeat([]byte("text"), PageSize) },
		"newest meta":             func(data []byte) []byte { data[newer*PageSize+60]++; return data },
		"older meta":              func(data []byte) []byte { clear(data[(1-newer)*PageSize : (2-newer)*PageSize]); return data },
		"older meta twice": func(data []byte) []byte {
			copy(data[newer*PageSize+16:(newer+1)*PageSize], data[(1-newer)*PageSize+16:])
			return data
		},
		"page that leads to itself": func(data []byte) []byte { all(data, branchPage, func(p []byte) { copy(p[24:32], p[:8]) }); return data },
		"page beyond the end":       func(data []byte) []byte { all(data, branchPage, func(p []byte) { put64(p[24:], 1<<40) }); return data },
		"page of another number": func(data []byte) []byte {
			at := pageOf(leafPage)
			all(data, leafPage, func(p []byte) { put64(p, uint64(at)) })
			return data
		},
		"hole":                       func(data []byte) []byte { all(data, leafPage, func(p []byte) { clear(p) }); return data },
		"page of a wrong type":       func(data []byte) []byte { all(data, leafPage, func(p []byte) { put16(p[8:], 16) }); return data },
		"more elements than fit":     func(data []byte) []byte { all(data, leafPage, func(p []byte) { put16(p[10:], 65535) }); return data },
		"overflow beyond the end":    func(data []byte) []byte { all(data, leafPage, func(p []byte) { put32(p[12:], 1<<31) }); return data },
		"value beyond its page":      func(data []byte) []byte { all(data, leafPage, func(p []byte) { put32(p[28:], 1<<31) }); return data },
		"position beyond its page":   func(data []byte) []byte { all(data, leafPage, func(p []byte) { put32(p[20:], 1<<32-1) }); return data },
		"bucket where a record was":  func(data []byte) []byte { all(data, leafPage, func(p []byte) { put32(p[16:], 1) }); return data },
		"record where a bucket was":  func(data []byte) []byte { all(data, leafPage, func(p []byte) { put32(p[16:], 0) }); return data },
		"more pages than a file has": func(data []byte) []byte { return data[:len(data)/16] },
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Read(bytes.NewReader(damage(slices.Clone(whole))))
			if _, ok := errors.AsType[DamageError](err); !ok {
				t.Errorf("got %v; want a DamageError", err)
			}
		})
	}
}

// Any damage is read in bounded time and memory, or found.
func TestReadFlippedBits(t *testing.T) {
	whole := write(t, map[string][]Entry{"a": entries(100, 300), "b": entries(1, 9000)})
	dice := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		data := slices.Clone(whole)
		for range 1 + dice.IntN(3) {
			page := dice.IntN(len(data) / PageSize)
			data[page*PageSize+dice.IntN(100)] ^= 1 << dice.IntN(8)
		}
		_, _ = Read(bytes.NewReader(data))
	}
}

type failing struct{}

func (failing) ReadAt([]byte, int64) (int, error) { return 0, os.ErrPermission }

func TestReadFails(t *testing.T) {
	_, err := Read(failing{})
	check.True(t, errors.Is(err, os.ErrPermission), "got %v; want %v", err, os.ErrPermission)
}
