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

// agentLimit is how long the agent may take to respond. The release delay is longer than the interval of
// its writes.
func (s *state) agentLimit() time.Duration { return max(s.delay, minAgentLimit) }

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

// silentSince returns since when the agent has not responded; the zero time if it does.
func (s *state) silentSince() time.Time {
	all := slices.AppendSeq(slices.Collect(maps.Values(s.unanswered)), maps.Values(s.unreported))
	if len(all) == 0 {
		return time.Time{}
	}
	return slices.MinFunc(all, time.Time.Compare)
}

// agentProblem describes an agent that does not respond; empty if it does.
func (s *state) agentProblem() string {
	limit := s.agentLimit()
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
		"It does not follow its CiliumNode, for example after etcd was restored: restart it (docs/operate/bridge.md, After a restore of etcd)",
		limit, len(marks), len(pods), strings.Join(all[:min(len(all), maxNamed)], ", "))
}
