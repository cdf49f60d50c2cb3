package harness

import (
	"slices"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// JournalIs fails the test unless the journal of a sidecar that has ended keeps
// exactly what its last list said. It does not judge an attachment that was on its
// way then, whose work may have ended after the list.
func (n *Node) JournalIs(t testing.TB, last []Attachment) {
	t.Helper()
	onDisk, err := oracle.Journal(n.StateDir)
	if err != nil {
		t.Fatal(err)
	}
	moving := map[string]bool{}
	for _, a := range last {
		moving[a.ContainerID] = a.moves()
	}
	last = slices.DeleteFunc(slices.Clone(last), Attachment.moves)
	onDisk = slices.DeleteFunc(onDisk, func(k oracle.Kept) bool { return moving[k.ContainerID] })
	if err := oracle.SameKept(onDisk, keptBy(last)); err != nil {
		t.Errorf("after the end: %v", err)
	}
}

// moves tells whether an attachment may soon be another one without a request.
func (a Attachment) moves() bool {
	soon := time.Now().Add(patience)
	switch {
	case a.State == "adding" || a.State == "releasing":
		return true
	case a.State == "cooldown":
		return a.ReleaseAt.Before(soon)
	default:
		return a.Expiration != nil && a.Expiration.Deadline.Before(soon)
	}
}

// keptBy turns a list into what the oracle compares with the journal.
func keptBy(list []Attachment) []oracle.Kept {
	var all []oracle.Kept
	for _, a := range list {
		k := oracle.Kept{
			ContainerID: a.ContainerID, Owner: a.Owner, Pool: a.Pool, Network: a.Network,
			State: a.State, Claims: a.Claims,
		}
		for _, address := range a.Addresses {
			k.IPs = append(k.IPs, address.IP)
		}
		all = append(all, k)
	}
	return all
}
