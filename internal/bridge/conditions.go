package bridge

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/planner"
	"github.com/delegated-ipam/delegated-ipam/internal/nodeevents"
)

func (s snapshot) conditions(st *state) map[string]nodeevents.Condition {
	subjects := map[string][]string{}
	if len(s.malformed) > 0 {
		subjects[reasonMalformedEntry] = s.malformed
	}
	for _, r := range s.plan.Reports {
		subjects[r.Reason] = append(subjects[r.Reason], r.IP.String())
	}
	for _, a := range s.plan.Restore {
		// Another attempt does not end the condition; its success does.
		if ip := a.IPs[0]; s.isUsed(ip) && st.refusals[planner.Restore].of[ip] != nil {
			subjects[planner.AddressNotHeld] = append(subjects[planner.AddressNotHeld], ip.String())
		}
	}
	current := map[string]nodeevents.Condition{}
	for reason, about := range subjects {
		slices.Sort(about)
		about = slices.Compact(about)
		current[reason] = nodeevents.Condition{Subject: strings.Join(about, ","), Message: describe(reason, about)}
	}
	if message := st.agentCondition(); message != "" {
		current[reasonAgentNotResponding] = nodeevents.Condition{Message: message}
	}
	for _, kind := range []planner.Kind{planner.Release, planner.Acquire} {
		of := st.refusals[kind].of
		for _, ip := range slices.SortedFunc(maps.Keys(of), netip.Addr.Compare) {
			current[of[ip].reason] = nodeevents.Condition{Message: of[ip].cause.Error()}
		}
	}
	return current
}

// isUsed reports whether the agent uses an address, or a pod has one that is not published.
func (s snapshot) isUsed(ip netip.Addr) bool {
	_, used := s.observed.Used[ip]
	_, published := s.observed.Pool[ip]
	return used || s.observed.PodIPs[ip] && !published
}

// maxNamed limits the addresses that one message names: an Event takes at most 1024 bytes.
const maxNamed = 8

func describe(reason string, subjects []string) string {
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

// minAgentLimit is the least time after which an agent does not respond: longer than its restart, and
// than the interval of its writes in small clusters.
const minAgentLimit = 5 * time.Minute

// observeAgent records since when the agent has not answered handshakes, and not reported the addresses
// of pods as used.
func (s *state) observeAgent(o planner.Observed) {
	update(s.unanswered, o.Handshakes, func(ip netip.Addr) bool {
		return o.Handshakes[ip] == planner.MarkedForRelease || o.Handshakes[ip] == planner.Released
	})
	update(s.unreported, o.PodIPs, func(ip netip.Addr) bool {
		_, used := o.Used[ip]
		_, ours := o.Pool[ip].Slot()
		return o.PodIPs[ip] && ours && !used
	})
}

// update keeps since when a condition is met by addresses.
func update[V any](since map[netip.Addr]time.Time, all map[netip.Addr]V, met func(ip netip.Addr) bool) {
	maps.DeleteFunc(since, func(ip netip.Addr, _ time.Time) bool { return !met(ip) })
	for ip := range all {
		if since[ip].IsZero() && met(ip) {
			since[ip] = time.Now()
		}
	}
}

// silentSince returns since when the agent has not responded; the zero time if it does.
func (s *state) silentSince() time.Time {
	all := slices.AppendSeq(slices.Collect(maps.Values(s.unanswered)), maps.Values(s.unreported))
	if len(all) == 0 {
		return time.Time{}
	}
	return slices.MinFunc(all, time.Time.Compare)
}

// agentCondition describes an agent that does not respond; empty if it does. The release delay is longer
// than the interval of its writes.
func (s *state) agentCondition() string {
	limit := max(s.delay, minAgentLimit)
	overdue := func(all map[netip.Addr]time.Time) (names []string) {
		for _, ip := range slices.SortedFunc(maps.Keys(all), netip.Addr.Compare) {
			if time.Since(all[ip]) >= limit {
				names = append(names, ip.String())
			}
		}
		return names
	}
	marks, pods := overdue(s.unanswered), overdue(s.unreported)
	all := slices.Concat(marks, pods)
	if len(all) == 0 {
		return ""
	}
	return fmt.Sprintf("for %s cilium-agent has not answered %d entries of status.ipam.release-ips, and not reported %d addresses of running pods in status.ipam.used: %s. "+
		"It does not follow its CiliumNode, for example after etcd was restored: restart it (docs/operate/etcd.md)",
		limit, len(marks), len(pods), strings.Join(all[:min(len(all), maxNamed)], ", "))
}
