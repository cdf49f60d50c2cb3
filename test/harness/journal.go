package harness

import (
	"slices"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// WantJournal fails the test unless the journal of a stopped sidecar equals its last list. It
// ignores an attachment that was in transition in that list and may have changed since.
func (n *Node) WantJournal(t testing.TB, last []Attachment) {
	t.Helper()
	onDisk, err := oracle.Journal(n.StateDir)
	Must(t, err)
	inTransition := map[string]bool{}
	for _, a := range last {
		inTransition[a.ContainerID] = a.inTransition()
	}
	last = slices.DeleteFunc(slices.Clone(last), Attachment.inTransition)
	onDisk = slices.DeleteFunc(onDisk, func(k oracle.Kept) bool { return inTransition[k.ContainerID] })
	if err := oracle.SameKept(onDisk, keptRecords(last)); err != nil {
		t.Errorf("after the stop: %v", err)
	}
}

// inTransition reports whether an attachment may soon change without a request.
func (a Attachment) inTransition() bool {
	soon := time.Now().Add(waitTimeout)
	switch {
	case a.State == "adding" || a.State == "releasing":
		return true
	case a.State == "cooldown":
		return a.ReleaseAt.Before(soon)
	default:
		return a.Expiration != nil && a.Expiration.Deadline.Before(soon)
	}
}

// keptRecords converts a list into records that the oracle compares with the journal.
func keptRecords(list []Attachment) []oracle.Kept {
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
