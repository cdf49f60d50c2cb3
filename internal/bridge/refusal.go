package bridge

import (
	"math/rand/v2"
	"net/netip"
	"time"

	"k8s.io/client-go/util/flowcontrol"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/planner"
)

// The delay after a refused request is between minRefusalDelay and twice that, and grows to
// maxRefusalDelay: addresses that another node has released are found within it.
const (
	minRefusalDelay = 2500 * time.Millisecond
	maxRefusalDelay = 45 * time.Second
)

// refusal is a request that the daemon has refused, and repeats after a delay.
type refusal struct {
	until time.Time
	// reason and cause describe the last refusal, since is the time of the first, and failed the time of
	// the first that a busy daemon did not cause; zero for none.
	reason        string
	cause         error
	since, failed time.Time
}

func (r *refusal) active() bool { return r != nil && time.Now().Before(r.until) }

// refusals are the refused requests of one kind, by address. Each refusal in a row of one address delays its
// repetition for longer.
type refusals struct {
	delays *flowcontrol.Backoff
	of     map[netip.Addr]*refusal
}

func newRefusals() refusals {
	return refusals{flowcontrol.NewBackOffWithJitter(minRefusalDelay, maxRefusalDelay, 1), map[netip.Addr]*refusal{}}
}

// add records a refusal. A daemon that names a delay (Retry-After) is asked again after that.
func (r refusals) add(ip netip.Addr, cause *failure) {
	now := time.Now()
	last := r.of[ip]
	if last == nil {
		last = &refusal{since: now}
		r.of[ip] = last
	}
	last.reason, last.cause = cause.reason, cause.err
	if last.failed.IsZero() && last.reason != reasonDaemonBusy {
		last.failed = now
	}
	if cause.after > 0 {
		last.until = now.Add(jitter(cause.after, 2*cause.after))
		return
	}
	r.delays.Next(ip.String(), now)
	last.until = now.Add(r.delays.Get(ip.String()))
}

func (r refusals) end(ip netip.Addr) {
	r.delays.Reset(ip.String())
	delete(r.of, ip)
}

// forget removes the addresses that no longer exist.
func (r refusals) forget(exists func(netip.Addr) bool) {
	for ip := range r.of {
		if !exists(ip) {
			r.end(ip)
		}
	}
}

// waiting returns the addresses whose requests of a kind are not repeated yet.
func (s *state) waiting(k planner.Kind) map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	for ip, last := range s.refusals[k].of {
		out[ip] = !s.reached(last.until)
	}
	return out
}

func jitter(from, to time.Duration) time.Duration { return from + rand.N(to-from) }
