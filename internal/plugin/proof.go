package plugin

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// stores are the stores that ADDs have proven or disproven. It is safe for concurrent use.
type stores struct {
	mu    sync.Mutex
	known map[store]proof
}

// proof is what the ADDs of this process have shown of a store.
type proof struct {
	// proven reports that the result of the last ADD was found there.
	proven bool
	// off is why lookup is off: the result of an ADD was not found. It stays off until the process
	// ends, or network, directory or executable change.
	off string
}

func (all *stores) get(s store) proof {
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.known[s]
}

// setProven records that the result of an ADD was found, unless that of another was not.
func (all *stores) setProven(s store) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.known[s].off == "" {
		all.known[s] = proof{proven: true}
	}
}

// setOff records that the result of an ADD was not found, and reports whether it is the first of
// the store.
func (all *stores) setOff(s store, off string) (first bool) {
	all.mu.Lock()
	defer all.mu.Unlock()
	first = all.known[s].off == ""
	if first {
		all.known[s] = proof{off: off}
	}
	return first
}

// prove looks up the result of an ADD that has just succeeded, and reports whether the store has
// it. If not, the plugin keeps its addresses in another place or form than its profile says, and
// lookup is off for the store.
func (r *Runner) prove(ctx context.Context, c call.Call, result call.Result) bool {
	s, err := r.usableStore(c.Invocation)
	if err != nil {
		return false
	}
	for _, a := range result.Addresses {
		if reason := s.missingReason(c.ContainerID, c.Invocation.IfName, a.Addr()); reason != "" {
			off := fmt.Sprintf("lookup is off for network %s: ADD returned %s, but %s; is this plugin a wrapper, or does its dataDir lie elsewhere?", s.network, a.Addr(), reason)
			if r.stores.setOff(s, off) {
				logging.ForRequest(ctx, r.log).WithField("plugin", c.Invocation.Plugin).WithField("binary", s.binary).Warn(off)
			}
			return false
		}
	}
	r.stores.setProven(s)
	return true
}

// missingReason returns why the store does not prove an address; empty if it does.
func (s store) missingReason(containerID, ifname string, ip netip.Addr) string {
	held, err := s.holds(containerID, ifname, []netip.Addr{ip})
	switch {
	case err != nil:
		return err.Error()
	case !held:
		return fmt.Sprintf("%s/%s does not name container ID %s, interface %s", s.dir, ip, containerID, ifname)
	}
	return ""
}

// Verification is how the held attachments of a network are verified.
type Verification struct {
	// By is VerifyByLookup, or a profile.Verify.
	By string
	// Reason is why lookup is off although the profile has one, or what lookup waits for; empty for
	// neither.
	Reason string
}

// VerifyByLookup is the Verification.By of a network whose store is looked up.
const VerifyByLookup = "lookup"

// Verification returns how an attachment of the invocation's network is verified now.
func (r *Runner) Verification(inv call.Invocation) Verification {
	s, err := r.storeOf(inv)
	withoutLookup := string(inv.VerifyBy())
	switch known := r.stores.get(s); {
	case errors.Is(err, errNoLookup):
		return Verification{By: withoutLookup}
	case err != nil:
		return Verification{By: withoutLookup, Reason: err.Error()}
	case known.off != "":
		return Verification{By: withoutLookup, Reason: known.off}
	case !known.proven:
		return Verification{By: VerifyByLookup, Reason: fmt.Sprintf("no ADD since the start of this process has proven yet that the plugin keeps its addresses in %s; an attachment is looked up if its own ADD has", s.dir)}
	default:
		return Verification{By: VerifyByLookup}
	}
}
