package bridge

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/planner"
	"github.com/delegated-ipam/delegated-ipam/internal/nodeevents"
)

// observeConditions replaces the conditions of the previous observation by those of this one.
func (c *controller) observeConditions(s snapshot) {
	current := map[string]nodeevents.Condition{}
	for reason, condition := range s.conditions(c.state) {
		current[string(reason)] = condition
	}
	c.conditions.Observe(current)
}

// reportFailure sets the condition of an error.
func (c *controller) reportFailure(err error) {
	var e *reconcileError
	if errors.As(err, &e) {
		c.conditions.Fail(string(e.reason), e.err.Error())
		return
	}
	c.log.WithError(err).Warn("Reconciliation failed")
}

// conditions returns the conditions of an observation.
func (s snapshot) conditions(st *state) map[planner.Reason]nodeevents.Condition {
	subjects := map[planner.Reason][]string{}
	if len(s.malformed) > 0 {
		subjects[reasonMalformedEntry] = s.malformed
	}
	for _, a := range s.plan {
		for _, ip := range a.IPs {
			switch {
			case a.Kind == planner.Report:
				subjects[a.Reason] = append(subjects[a.Reason], ip.String())
			case a.Kind == planner.Restore && s.isUsed(ip) && st.restoreBackoffs[ip] != nil:
				// Another attempt does not end the condition; its success does.
				subjects[planner.AddressNotHeld] = append(subjects[planner.AddressNotHeld], ip.String())
			}
		}
	}
	current := map[planner.Reason]nodeevents.Condition{}
	for reason, about := range subjects {
		slices.Sort(about)
		about = slices.Compact(about)
		current[reason] = nodeevents.Condition{Subject: strings.Join(about, ","), Message: describe(reason, about)}
	}
	if message := st.agentCondition(); message != "" {
		current[reasonAgentNotResponding] = nodeevents.Condition{Message: message}
	}
	for _, b := range st.releaseBackoffs {
		current[b.reason] = nodeevents.Condition{Message: b.cause.Error()}
	}
	if b := st.acquireBackoff; b != nil {
		current[b.reason] = nodeevents.Condition{Message: b.cause.Error()}
	}
	return current
}

// isUsed reports whether the agent uses an address, or a pod has one that is not published.
func (s snapshot) isUsed(ip netip.Addr) bool {
	_, used := s.view.Used[ip]
	_, published := s.view.Pool[ip]
	return used || s.view.PodIPs[ip] && !published
}

// maxNamed limits the addresses that one message names: that of an Event has at most 1024 bytes.
const maxNamed = 8

func describe(reason planner.Reason, subjects []string) string {
	count := len(subjects)
	names := strings.Join(subjects[:min(count, maxNamed)], ", ")
	if count > maxNamed {
		names += ", …"
	}
	switch reason {
	case planner.ForeignEntry:
		return fmt.Sprintf("spec.ipam.pool has %d entries that the bridge did not write and does not change: %s", count, names)
	case planner.AddressNotHeld:
		return fmt.Sprintf("%d used addresses are not held by the sidecar and could not be restored: %s. Those in spec.ipam.pool stay there while they are used; "+
			"the others are not published, and the agent drops their endpoints when it restarts. "+
			"The plugin may allocate them to another client: recreate their pods", count, names)
	case planner.AddressOutsideRange:
		return fmt.Sprintf("%d used addresses are outside the ranges of this node's present CNI configuration: %s. Another node may have them: "+
			"recreate their pods, which get other addresses, and restart the agent with a new CiliumNode for its own (docs/install/ranges.md). They are not allocated again", count, names)
	default:
		return fmt.Sprintf("spec.ipam.pool has %d keys that are not addresses as cilium-agent spells them; the bridge does not change them: %s", count, names)
	}
}
