package oracle

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

// Attachment is an attachment as the journal or the list has it.
type Attachment struct {
	ContainerID, Owner, Pool, Network string
	// State is a state of docs/design/how-it-works.md, States.
	State string
	// IPs and Claims are in the order of the source.
	IPs    []netip.Addr
	Claims []string
}

// String has every field: attachments that differ have different strings.
func (k Attachment) String() string {
	return fmt.Sprintf("container ID %q of owner %q in pool %q and network %q: %s, addresses %v, claims %v",
		k.ContainerID, k.Owner, k.Pool, k.Network, k.State, k.IPs, k.Claims)
}

// Journal returns the attachments that a sidecar would load from a state directory, without those
// that hold nothing. It reads a copy, because loading a journal removes leftovers. A missing
// directory has no attachments.
func Journal(stateDir string) (kept []Attachment, err error) {
	scratch, err := os.MkdirTemp("", "journal-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	if err := copyFiles(filepath.Join(scratch, "attachments"), filepath.Join(stateDir, "attachments")); err != nil {
		return nil, err
	}
	j, err := journal.Open(scratch, journal.Options{})
	if err != nil {
		return nil, err
	}
	loaded, err := j.Load()
	for _, r := range loaded.Records {
		if r.State == record.Tombstone {
			continue
		}
		k := Attachment{ContainerID: r.IDInUse(), Owner: r.Owner, Pool: r.Pool, Network: r.Network, State: string(r.State), IPs: r.Addrs()}
		for _, family := range r.Claims {
			k.Claims = append(k.Claims, string(family))
		}
		kept = append(kept, k)
	}
	return kept, errors.Join(err, j.Close())
}

// copyFiles copies the files of a directory, except those that a running sidecar removes meanwhile.
func copyFiles(to, from string) error {
	entries, err := os.ReadDir(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	err = errors.Join(err, os.Mkdir(to, 0o700))
	for _, e := range entries {
		if e.IsDir() {
			continue // no record
		}
		data, readErr := os.ReadFile(filepath.Join(from, e.Name()))
		if !errors.Is(readErr, fs.ErrNotExist) {
			err = errors.Join(err, readErr, os.WriteFile(filepath.Join(to, e.Name()), data, 0o600))
		}
	}
	return err
}

// CompareAttachments returns nil if the journal on disk and the sidecar's list have the same attachments.
// Otherwise the error names each one that only one of them has in that form.
func CompareAttachments(onDisk, listed []Attachment) error {
	return errors.Join(
		missing("only the journal has %s", onDisk, listed), missing("the journal does not have %s", listed, onDisk))
}

// missing returns an error for each element that another list lacks in that form.
func missing[E fmt.Stringer](format string, all, from []E) error {
	var errs []error
	for _, e := range all {
		if !slices.ContainsFunc(from, func(f E) bool { return f.String() == e.String() }) {
			errs = append(errs, fmt.Errorf(format, e))
		}
	}
	return errors.Join(errs...)
}
