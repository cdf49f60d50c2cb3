package doctor

import (
	"cmp"
	"fmt"

	"github.com/delegated-ipam/delegated-ipam/api/models"
)

// Sight is everything that was seen.
type Sight struct {
	// Options are those that were gone by.
	Options Options
	// Node is what was seen around the sidecar; nil if it was not known where to look.
	Node *Node
	// Status is the sidecar's answer; StatusErr is why there is none.
	Status    *models.DelegatedIPAMStatus
	StatusErr error
	// Stores are those of the pools in Status, or else of those that a start would have.
	Stores []Store
	// Before and After are the sidecar's list before and after Stores were read, so
	// that work that went on meanwhile is not taken for a fault. ListErr is why one
	// of the two is missing.
	Before, After []*models.Attachment
	ListErr       error
}

// Pools are those whose stores are to be looked at: the sidecar's, or, where none
// answers, those that a start would have.
func (s Sight) Pools() []*models.PoolStatus {
	switch {
	case s.Status != nil:
		return s.Status.Pools
	case s.Node != nil:
		return s.Node.PoolStatuses()
	}
	return nil
}

// Findings returns what was found: at least one finding for each check that could
// be made, with the state OK where all is well.
func (s Sight) Findings() []Finding {
	all := append(s.sidecar(), s.Options.findings()...)
	if s.Node != nil {
		all = append(all, s.Node.findings(s.Stores)...)
	}
	for _, store := range s.Stores {
		if s.Node.unread(store.Pool) {
			continue // said of the configuration
		}
		found, readable := store.findings()
		all = append(all, found...)
		if readable && s.StatusErr == nil && s.ListErr == nil {
			all = append(all, s.leases(store)...)
		}
	}
	if s.StatusErr == nil {
		all = append(all, s.verification()...)
		all = append(all, s.heldPlugins()...)
		all = append(all, s.attachments()...)
	}
	return all
}

// sidecar is what the sidecar says of itself.
func (s Sight) sidecar() []Finding {
	if s.StatusErr != nil {
		return []Finding{{
			Check: CheckSidecar, State: Error, Seen: s.StatusErr.Error(),
			Do: "start the sidecar, end one that hangs, or name its socket; without its answer no lease is compared, and what follows is what a start would find",
		}}
	}
	var all []Finding
	if s.Status.Ready {
		all = append(all, Finding{Check: CheckSidecar, State: OK, Seen: "it answers and is ready"})
	}
	reasons := s.Status.Reasons
	if !s.Status.Ready && len(reasons) == 0 {
		reasons = []string{"it is not ready and does not say why"}
	}
	for _, reason := range reasons {
		all = append(all, Finding{
			Check: CheckSidecar, State: Error, Seen: "not ready: " + reason,
			Do: "mend what it names; `delegated-ipam status` shows each pool",
		})
	}
	if s.ListErr != nil {
		all = append(all, Finding{
			Check: CheckSidecar, State: Error, Seen: "it does not tell its list: " + s.ListErr.Error(),
			Do: "run doctor as a user who may call (docs/security.md); no lease could be compared",
		})
	}
	return all
}

// findings is what the store shows by itself, and whether it could be read.
func (s Store) findings() (all []Finding, readable bool) {
	if s.Network == "" {
		return nil, false // said of the configuration
	}
	if s.Plugin != hostLocal {
		return []Finding{{
			Check: CheckStore, Pool: s.Pool, State: OK,
			Seen: fmt.Sprintf("not looked at: only the files of host-local are known, and the plugin is %s", cmp.Or(s.Plugin, "unknown")),
		}}, false
	}
	for _, ip := range s.Removed {
		all = append(all, Finding{
			Check: CheckEmptyFiles, Pool: s.Pool, Address: ip.String(), State: OK,
			Seen: s.file(ip) + " named no container ID and was removed; the address is free",
		})
	}
	for _, ip := range s.Empty {
		all = append(all, Finding{
			Check: CheckEmptyFiles, Pool: s.Pool, Address: ip.String(), State: Warning,
			Seen: s.file(ip) + " names no container ID: a killed host-local left it, and no CNI call frees the address",
			Do:   "`delegated-ipam doctor --repair` removes it",
		})
	}
	for _, ip := range s.Odd {
		all = append(all, Finding{
			Check: CheckStore, Pool: s.Pool, Address: ip.String(), State: Warning,
			Seen: s.file(ip) + " is no file that host-local makes: it bars the address, and host-local can hang on it",
			Do:   "see what it is, and remove it",
		})
	}
	if s.Err != nil {
		return append(all, Finding{
			Check: CheckStore, Pool: s.Pool, State: Error, Seen: s.Err.Error(),
			Do: "run doctor as the sidecar's user and with its mounts; if it says what is wrong with the file, mend that",
		}), false
	}
	if len(s.Removed)+len(s.Empty) == 0 {
		all = append(all, Finding{
			Check: CheckEmptyFiles, Pool: s.Pool, State: OK,
			Seen: fmt.Sprintf("none among the %d addresses in %s", len(s.Leases), s.Dir),
		})
	}
	return all, true
}
