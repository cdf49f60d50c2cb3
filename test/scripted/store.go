package main

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// store is a folder with one file for each address that is held. A file is
// named by the address and holds the text of its holder, by default
// "<container ID>\n<interface>".
type store struct {
	dir  string
	lock *os.File
}

// openStore returns the store, locked until close.
func openStore(scriptDir string) (*store, error) {
	dir := filepath.Join(scriptDir, "store")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(scriptDir, "store.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		lock.Close()
		return nil, err
	}
	return &store{dir: dir, lock: lock}, nil
}

func (s *store) close() { s.lock.Close() }

// reserve returns false if the address is taken.
func (s *store) reserve(ip netip.Addr, h holder) (bool, error) {
	f, err := os.OpenFile(filepath.Join(s.dir, ip.String()), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	_, err = f.WriteString(h.text())
	return err == nil, err
}

// rewrite puts the holder's text of today into the files of what it has.
func (s *store) rewrite(held []netip.Addr, h holder) error {
	for _, ip := range held {
		if err := os.WriteFile(filepath.Join(s.dir, ip.String()), []byte(h.text()), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// heldBy returns the addresses of a holder.
func (s *store) heldBy(h holder) ([]netip.Addr, error) {
	return s.find(h.has)
}

// find returns the addresses whose file has a text that is wanted.
func (s *store) find(wanted func(text string) bool) ([]netip.Addr, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	var held []netip.Addr
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(s.dir, e.Name()))
		if err != nil {
			return nil, err
		}
		if !wanted(strings.TrimSpace(string(data))) {
			continue
		}
		ip, err := netip.ParseAddr(e.Name())
		if err != nil {
			return nil, err
		}
		held = append(held, ip)
	}
	return held, nil
}

// free removes what a holder has.
func (s *store) free(h holder) error {
	return s.freeUnless(func(text string) bool { return !h.has(text) })
}

// freeUnless removes every address but those whose file has a text to keep.
func (s *store) freeUnless(keep func(text string) bool) error {
	held, err := s.find(func(text string) bool { return !keep(text) })
	for _, ip := range held {
		err = errors.Join(err, os.Remove(filepath.Join(s.dir, ip.String())))
	}
	return err
}
