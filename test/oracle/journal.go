package oracle

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/delegated-ipam/delegated-ipam/pkg/journal"
	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

// Kept is what the sidecar keeps of one attachment, by its journal or by its list.
type Kept struct {
	ContainerID, Owner, Pool, Network string
	// State is in the journal's words, which are the list's (docs/how-it-works.md, States).
	State string
	// IPs and Claims are in the order in which they are kept.
	IPs    []netip.Addr
	Claims []string
}

// String names everything that is kept, so that two that differ differ in it, too.
func (k Kept) String() string {
	return fmt.Sprintf("container ID %q of owner %q in pool %q and network %q: %s, addresses %v, claims %v",
		k.ContainerID, k.Owner, k.Pool, k.Network, k.State, k.IPs, k.Claims)
}

// Journal returns what a sidecar that started on the state folder now would read
// of attachments in it, without those that hold nothing. It reads a copy, because
// reading a journal tidies it up, and leaves the folder itself alone. A state
// folder that is not there yet keeps nothing.
func Journal(stateDir string) (kept []Kept, err error) {
	scratch, err := os.MkdirTemp("", "journal-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	if err := copyFiles(filepath.Join(scratch, "attachments"), filepath.Join(stateDir, "attachments")); err != nil {
		return nil, err
	}
	loaded, err := load(scratch)
	for _, r := range loaded.Records {
		if r.State != record.Tombstone {
			kept = append(kept, keptIn(r))
		}
	}
	return kept, err
}

// copyFiles copies a folder of files. One that vanishes meanwhile, or the folder if it
// is not there, is left out: a sidecar may be at work.
func copyFiles(to, from string) error {
	entries, err := os.ReadDir(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = os.Mkdir(to, 0o700)
	}
	for _, e := range entries {
		if err != nil {
			return err
		}
		if e.IsDir() {
			continue // no record
		}
		var data []byte
		data, err = os.ReadFile(filepath.Join(from, e.Name()))
		if err == nil {
			err = os.WriteFile(filepath.Join(to, e.Name()), data, 0o600)
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	return err
}

func load(stateDir string) (journal.Loaded, error) {
	j, err := journal.Open(stateDir, journal.Options{})
	if err != nil {
		return journal.Loaded{}, err
	}
	loaded, err := j.Load()
	return loaded, errors.Join(err, j.Close())
}

func keptIn(r record.Record) Kept {
	k := Kept{ContainerID: r.ContainerID, Owner: r.Owner, Pool: r.Pool, Network: r.Network, State: string(r.State), IPs: r.Addrs()}
	for _, family := range r.Claims {
		k.Claims = append(k.Claims, string(family))
	}
	return k
}

// SameKept returns nil if the journal on disk and the sidecar's list keep exactly
// the same. Else the error names everything that only one of them keeps so.
func SameKept(onDisk, listed []Kept) error {
	disk, list := texts(onDisk), texts(listed)
	var errs []error
	for _, text := range disk {
		if !slices.Contains(list, text) {
			errs = append(errs, fmt.Errorf("only the journal has %s", text))
		}
	}
	for _, text := range list {
		if !slices.Contains(disk, text) {
			errs = append(errs, fmt.Errorf("the journal does not have %s", text))
		}
	}
	return errors.Join(errs...)
}

func texts(all []Kept) []string {
	out := make([]string, len(all))
	for i, k := range all {
		out[i] = k.String()
	}
	return out
}
