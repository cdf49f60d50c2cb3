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

// store is a directory with a file for each held address. The file is named by the address and
// contains the text of its holder, by default "<container ID>\n<interface>".
type store struct {
	dir  string
	lock *os.File
	// cooldown is the directory with a file for each released address; empty for a plugin without a
	// cooldown.
	cooldown string
}

// openStore returns the plugin's store, locked until close.
func (c conf) openStore() (*store, error) {
	scriptDir := c.scriptDir()
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
	s := &store{dir: dir, lock: lock}
	if c.IPAM.Cooldown {
		s.cooldown = filepath.Join(scriptDir, "cooldown")
		err = os.MkdirAll(s.cooldown, 0o755)
	}
	return s, err
}

func (s *store) close() { s.lock.Close() }

// reserve returns false if the address is taken or in cooldown. The file is created atomically, so
// a killed plugin leaves no partial file.
func (s *store) reserve(ip netip.Addr, h holder) (bool, error) {
	path := filepath.Join(s.dir, ip.String())
	taken := []string{path}
	if s.cooldown != "" {
		taken = append(taken, filepath.Join(s.cooldown, ip.String()))
	}
	for _, file := range taken {
		if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
	}
	// The lock excludes other processes.
	unnamed := s.dir + ".new"
	err := errors.Join(os.WriteFile(unnamed, []byte(h.text()), 0o600), os.Rename(unnamed, path))
	return err == nil, err
}

// rewrite writes the holder's current text into the files of its addresses.
func (s *store) rewrite(held []netip.Addr, h holder) error {
	for _, ip := range held {
		if err := os.WriteFile(filepath.Join(s.dir, ip.String()), []byte(h.text()), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// addressesOf returns the addresses of a holder.
func (s *store) addressesOf(h holder) ([]netip.Addr, error) {
	return s.find(h.matches)
}

// find returns the addresses whose file has a wanted text.
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

// free frees the addresses of a holder.
func (s *store) free(h holder) error {
	return s.freeUnless(func(text string) bool { return !h.matches(text) })
}

// freeUnless frees every address except those whose file has a text to keep.
func (s *store) freeUnless(keep func(text string) bool) error {
	held, err := s.find(func(text string) bool { return !keep(text) })
	for _, ip := range held {
		err = errors.Join(err, s.remove(ip))
	}
	return err
}

// remove frees an address, immediately or after its cooldown.
func (s *store) remove(ip netip.Addr) error {
	path := filepath.Join(s.dir, ip.String())
	if s.cooldown == "" {
		return os.Remove(path)
	}
	return os.Rename(path, filepath.Join(s.cooldown, ip.String()))
}
