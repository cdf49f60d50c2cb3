package oracle

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/journal"
)

// Attachment is an attachment as the journal or the list has it.
type Attachment struct {
	ContainerID, Owner, Pool, Network string
	// State is a state of internal/daemon/attachment/doc.go.
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

// Journal returns the attachments that a daemon would load from a state directory, without those
// that hold nothing. A missing directory has no attachments.
func Journal(stateDir string) (kept []Attachment, err error) {
	_, all, err := journal.Read(stateDir)
	for _, r := range all.Records {
		if r.State == attachment.Tombstone {
			continue
		}
		k := Attachment{ContainerID: r.IDInUse(), Owner: r.Owner, Pool: r.Pool, Network: r.Network, State: string(r.State), IPs: r.Addrs()}
		for _, family := range r.Claims {
			k.Claims = append(k.Claims, string(family))
		}
		kept = append(kept, k)
	}
	return kept, err
}

// CompareAttachments returns nil if the journal on disk and the daemon's list have the same attachments.
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
