package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"golang.org/x/sys/unix"
)

// mostSpares is how many spares there are at most: as many as records may be
// written at the same time, and be on their way between two owners.
const mostSpares = 16

// spares are files of attachments/ that are no records any more, to be written over:
// it spares the disk a new inode and the end of an old one with each write.
//
// A file is here only while no name that may be on disk is that of a record. So
// it comes here after an fsync of the folder that has succeeded since it lost that
// name, and one with which anything has failed never comes here again.
//
// They are named as leftover knows it: the next Load removes them.
type spares struct {
	mu sync.Mutex
	// free are the names of those that may be written over.
	free []string
	// places are taken by what is free, and by what may become so.
	places int
	// named counts the names that were given.
	named int
}

// scratch is a file that is to be a record.
type scratch struct {
	file
	// overwritten tells that it was a spare, and has its inode and its block.
	overwritten bool
	// place tells that what it is exchanged for has a place among the spares.
	place bool
}

// scratch opens a file for so many bytes, which a caller fills and shuts. A first
// record, which gives no file back, takes no last spare: on a full disk what has
// begun needs it to be finished.
func (s *spares) scratch(d dir, size int, first bool) (scratch, error) {
	for size == block {
		name, ok := s.take(first)
		if !ok {
			break
		}
		f, err := d.open(name, 0)
		if err != nil {
			s.giveUp()
			continue
		}
		if st, err := f.look(); err == nil && fit(st) {
			return scratch{f, true, true}, nil
		}
		s.giveUp()
		_ = f.shut() // nothing was written to it
	}
	for {
		name, place := s.name()
		f, err := d.create(name)
		if err == nil {
			return scratch{f, false, place}, nil
		}
		if place {
			s.giveUp()
		}
		if !errors.Is(err, fs.ErrExist) { // else an earlier life has left it there
			return scratch{}, err
		}
	}
}

// fit tells whether a file can be a spare: its size is that of nearly every record,
// and nobody has given it a name or a mode of their own.
func fit(st unix.Stat_t) bool {
	return st.Mode == unix.S_IFREG|fileMode && st.Nlink == 1 && st.Size == block
}

// take returns the name of a spare that is nobody else's from now on.
func (s *spares) take(first bool) (name string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := len(s.free) - 1
	if last < 0 || first && last == 0 {
		return "", false
	}
	name = s.free[last]
	s.free = s.free[:last]
	return name, true
}

// name returns a name for a file, and whether it has a place among the spares.
func (s *spares) name() (name string, place bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.places < mostSpares {
		s.places++
		place = true
	}
	s.named++
	return fmt.Sprintf(".spare%s%d", suffix, s.named), place
}

// put adds the file of a name that has a place.
func (s *spares) put(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, name)
}

// giveUp makes a place free for another.
func (s *spares) giveUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.places--
}

// forget forgets every spare; nothing is under way.
func (s *spares) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free, s.places = nil, 0
}
