// Package boltfile writes bbolt files by bbolt and reads them without it: bbolt trusts the pages of a file. A damaged
// one sends it into an endless loop or out of its mapping, and an I/O error in a mapping is a signal
// (docs/design/decisions.md, The journal). The format is that of bbolt's internal/common.
package boltfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"

	"github.com/delegated-ipam/delegated-ipam/internal/files"
)

const (
	// PageSize is that of the files that can be read, in bytes. The content of a meta page is smaller than a sector,
	// so that a power loss leaves it whole.
	PageSize = 4096
	// MaxSize bounds a file, in bytes.
	MaxSize = 256 << 20

	branchPage, leafPage, metaPage = 0x01, 0x02, 0x04
	// The header of a page, each of the elements that follow it, and the header of a bucket have this size.
	headerSize = 16

	magic, version = 0xED0CDAED, 2
)

// Entry is a key with its value.
type Entry struct{ Key, Value []byte }

// DamageError is why a file is not what bbolt has written.
type DamageError string

func (e DamageError) Error() string { return "damaged: " + string(e) }

// Damaged returns a DamageError.
func Damaged(format string, args ...any) error { return DamageError(fmt.Sprintf(format, args...)) }

// meta is the head of a tree. A file has two, which transactions write in turn.
type meta struct {
	Magic, Version, PageSize, Flags                 uint32
	Root, Sequence, Freelist, Pages, TxID, Checksum uint64
}

// header begins a page, which continues on the pages of its overflow.
type header struct {
	ID           uint64
	Flags, Count uint16
	Overflow     uint32
}

// parse decodes the begin of data.
func parse[T any](data []byte) (v T) {
	_, _ = binary.Decode(data, binary.NativeEndian, &v)
	return v
}

// reader reads a file.
type reader struct {
	file  io.ReaderAt
	pages uint64 // that are in use
	seen  map[uint64]bool
}

// read returns a page, with those of its overflow.
func (r *reader) read(id uint64, overflow uint32) (header, []byte, error) {
	page := make([]byte, (uint64(overflow)+1)*PageSize)
	_, err := r.file.ReadAt(page, int64(id)*PageSize)
	if errors.Is(err, io.EOF) {
		err = Damaged("page %d is beyond the end of the file", id)
	}
	h := parse[header](page)
	if err == nil && h.ID != id {
		err = Damaged("page %d has the number %d", id, h.ID)
	}
	return h, page, err
}

// newest returns the meta of the last transaction.
func (r *reader) newest() (newer meta, err error) {
	var metas [2]meta
	for i := range metas {
		h, page, err := r.read(uint64(i), 0)
		if err != nil {
			return newer, err
		}
		page = page[headerSize:]
		m, sum := parse[meta](page), fnv.New64a()
		_, _ = sum.Write(page[:binary.Size(m)-8])
		if h.Flags != metaPage || m.Magic != magic || m.Version != version || m.PageSize != PageSize || m.Checksum != sum.Sum64() {
			return newer, Damaged("meta page %d is not valid", i)
		}
		metas[i] = m
	}
	older, newer := metas[0], metas[1]
	if older.TxID > newer.TxID {
		older, newer = newer, older
	}
	if newer.TxID != older.TxID+1 || newer.Pages > MaxSize/PageSize {
		err = Damaged("transactions %d and %d, %d pages", older.TxID, newer.TxID, newer.Pages)
	}
	return newer, err
}

// ReadIn is Read for a file in a directory, through no link. One that is not a regular file or too large is damaged.
func ReadIn(in *os.Root, name string) (map[string][]Entry, error) {
	f, err := files.OpenIn(in, name)
	if unfit, ok := errors.AsType[files.UnfitError](err); ok {
		return nil, DamageError(unfit)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && info.Size() > MaxSize {
		err = Damaged("%d bytes; expected at most %d", info.Size(), MaxSize)
	}
	if err != nil {
		return nil, err
	}
	return Read(f)
}

// Read returns the entries of each bucket in a file, by its name, in order. The error is a DamageError, or that the file
// cannot be read. Both meta pages must be valid: without the newest one a file is as before its last transaction.
func Read(file io.ReaderAt) (map[string][]Entry, error) {
	r := &reader{file: file, seen: map[uint64]bool{}}
	m, err := r.newest()
	if err != nil {
		return nil, err
	}
	r.pages = m.Pages
	buckets := map[string][]Entry{}
	err = r.walk(m.Root, func(bucket bool, e Entry) error {
		if !bucket || len(e.Value) < headerSize {
			return Damaged("%q is not a bucket", e.Key)
		}
		collect := func(bucket bool, inner Entry) error {
			if bucket {
				return Damaged("%q is a bucket", inner.Key)
			}
			buckets[string(e.Key)] = append(buckets[string(e.Key)], inner)
			return nil
		}
		if root := binary.NativeEndian.Uint64(e.Value); root != 0 {
			return r.walk(root, collect)
		}
		page := e.Value[headerSize:] // a small bucket is in the page of its parent
		return r.elements(parse[header](page), page, collect)
	})
	return buckets, err
}

// walk calls each for the entries below a page, in order. A page that is reached twice is damage.
func (r *reader) walk(id uint64, each func(bucket bool, e Entry) error) error {
	if id >= r.pages || r.seen[id] {
		return Damaged("page %d is out of place", id)
	}
	r.seen[id] = true
	h, page, err := r.read(id, 0)
	if err == nil && h.Overflow > 0 {
		if id+uint64(h.Overflow) >= r.pages {
			return Damaged("page %d is too long", id)
		}
		h, page, err = r.read(id, h.Overflow)
	}
	if err != nil {
		return err
	}
	return r.elements(h, page, each)
}

// elements is walk for a page that was read.
func (r *reader) elements(h header, page []byte, each func(bucket bool, e Entry) error) (err error) {
	if h.Flags != branchPage && h.Flags != leafPage || headerSize*(int(h.Count)+1) > len(page) {
		return Damaged("page %d has type %#x and %d elements", h.ID, h.Flags, h.Count)
	}
	for i := 1; i <= int(h.Count) && err == nil; i++ {
		element := page[headerSize*i:] // positions are relative to it
		if h.Flags == branchPage {
			err = r.walk(binary.NativeEndian.Uint64(element[8:]), each)
			continue
		}
		leaf := parse[struct{ Flags, Pos, KeySize, ValueSize uint32 }](element)
		middle := uint64(leaf.Pos) + uint64(leaf.KeySize)
		end := middle + uint64(leaf.ValueSize)
		if end > uint64(len(element)) {
			return Damaged("element %d of page %d is cut off", i, h.ID)
		}
		err = each(leaf.Flags&1 != 0, Entry{element[leaf.Pos:middle], element[middle:end]})
	}
	return err
}
