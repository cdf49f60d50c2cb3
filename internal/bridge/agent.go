package bridge

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/planner"
)

// minAgentLimit is the least time after which an agent does not respond: longer than its restart, and
// than the interval of its writes in small clusters.
const minAgentLimit = 5 * time.Minute

// observeAgent records since when the agent has not answered handshakes, and not reported the addresses
// of pods as used.
func (s *state) observeAgent(v planner.View) {
	update(s.unanswered, v.Handshakes, func(ip netip.Addr) bool {
		return v.Handshakes[ip] == planner.Marked || v.Handshakes[ip] == planner.Released
	})
	update(s.unreported, v.PodIPs, func(ip netip.Addr) bool {
		_, used := v.Used[ip]
		_, ours := v.Pool[ip].Slot()
		return v.PodIPs[ip] && ours && !used
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
func (s *state) silentSince() (oldest time.Time) {
	for _, all := range []map[netip.Addr]time.Time{s.unanswered, s.unreported} {
		for _, at := range all {
			if oldest.IsZero() || at.Before(oldest) {
				oldest = at
			}
		}
	}
	return oldest
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
	if len(marks)+len(pods) == 0 {
		return ""
	}
	all := append(marks, pods...)
	return fmt.Sprintf("for %s cilium-agent has not answered %d entries of status.ipam.release-ips, and not reported %d addresses of running pods in status.ipam.used: %s. "+
		"It does not follow its CiliumNode, for example after etcd was restored: restart it (docs/operate/etcd.md)",
		limit, len(marks), len(pods), strings.Join(all[:min(len(all), maxNamed)], ", "))
}
