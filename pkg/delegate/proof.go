package delegate

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
)

// stores remembers of each store what its ADDs have shown. It is safe for concurrent use.
type stores struct {
	mu    sync.Mutex
	known map[store]proof
}

// proof is what the ADDs of this process have shown of a store.
type proof struct {
	// proven: the last one's result was found there.
	proven bool
	// off is why lookup is not used: one's result was not found. It stays so until the
	// process ends or network, folder or binary change.
	off string
}

func (all *stores) get(s store) proof {
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.known[s]
}

// found remembers that the result of an ADD was found, unless another's was not.
func (all *stores) found(s store) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.known[s].off == "" {
		all.known[s] = proof{proven: true}
	}
}

// missed remembers that the result of an ADD was not found, and reports whether that
// is the first of the store's.
func (all *stores) missed(s store, off string) (first bool) {
	all.mu.Lock()
	defer all.mu.Unlock()
	first = all.known[s].off == ""
	if first {
		all.known[s] = proof{off: off}
	}
	return first
}

// prove looks up the result of an ADD that has just succeeded, and reports whether the
// store shows it. If not, the plugin keeps its addresses elsewhere or otherwise than
// its profile says, and its store is not looked up any more.
func (r *Runner) prove(c call.Call, result call.Result) bool {
	s, err := r.usableStore(c.Invocation)
	if err != nil {
		return false
	}
	for _, a := range result.Addresses {
		if why := s.missing(c.ContainerID, c.Invocation.IfName, a.Addr()); why != "" {
			off := fmt.Sprintf("lookup is off for network %s: ADD returned %s, but %s; is this plugin a wrapper, or does its dataDir lie elsewhere?", s.network, a.Addr(), why)
			if r.stores.missed(s, off) {
				r.log.WithField("plugin", c.Invocation.Plugin).WithField("binary", s.binary).Warn(off)
			}
			return false
		}
	}
	r.stores.found(s)
	return true
}

// missing is why the store does not show an address; empty if it does.
func (s store) missing(containerID, ifname string, ip netip.Addr) string {
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
	// Reason is why it is not lookup although the profile has one, or what lookup waits
	// for; empty for neither.
	Reason string
}

// VerifyByLookup is the Verification.By of a network whose store is looked up.
const VerifyByLookup = "lookup"

// Verification is how an attachment of a context's network is verified now.
func (r *Runner) Verification(c call.Invocation) Verification {
	s, err := r.lookup(c)
	otherwise := string(c.VerifyBy())
	switch known := r.stores.get(s); {
	case errors.Is(err, errNoLookup):
		return Verification{By: otherwise}
	case err != nil:
		return Verification{By: otherwise, Reason: err.Error()}
	case known.off != "":
		return Verification{By: otherwise, Reason: known.off}
	case !known.proven:
		return Verification{By: VerifyByLookup, Reason: fmt.Sprintf("no ADD since the start of this process has shown yet that the plugin keeps its addresses in %s; an attachment is looked up if its own ADD has shown it", s.dir)}
	default:
		return Verification{By: VerifyByLookup}
	}
}
