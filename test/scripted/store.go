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
// named by the address and holds "<container ID>\n<interface>".
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
func (s *store) reserve(ip netip.Addr, holder string) (bool, error) {
	f, err := os.OpenFile(filepath.Join(s.dir, ip.String()), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	_, err = f.WriteString(holder)
	return err == nil, err
}

// heldBy returns the addresses of a holder.
func (s *store) heldBy(holder string) ([]netip.Addr, error) {
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
		if strings.TrimSpace(string(data)) != holder {
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
func (s *store) free(holder string) error {
	held, err := s.heldBy(holder)
	for _, ip := range held {
		err = errors.Join(err, os.Remove(filepath.Join(s.dir, ip.String())))
	}
	return err
}
