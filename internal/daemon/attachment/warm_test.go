package attachment

import (
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// handing is the world of a container that takes a lease, with what readers see of it, and what they saw before the other
// attachment ended.
type handing struct {
	World
	taken        bool
	seen, before *Record
}

func (*handing) Now() time.Time { return time.Unix(0, 0) }

func (h *handing) Publish(s Status) { h.seen = s.Rec }

func (h *handing) Settle(Other, Work, bool) bool {
	h.before = h.seen
	return h.taken
}

// The plugin's GC frees what no attachment has, so at every moment one has the lease.
func TestTake(t *testing.T) {
	id := "cilium-agent-warm-1"
	warm := Record{Owner: "warm/1", Pool: "default", State: Held, Invocations: []call.Invocation{{ContainerID: id}}}
	for name, taken := range map[string]bool{"taken": true, "taken by another one": false} {
		t.Run(name, func(t *testing.T) {
			w := &handing{taken: taken}
			op := &Operation{Key: Key{Pool: "default", Owner: ContainerOwner("0123abcd", "eth0")}, Container: &call.Container{}, Opts: &Options{}, World: w}
			check.Equal(t, "taken", op.take(Other{Key: Key{Pool: "default", Owner: warm.Owner}, Record: &warm}), taken)
			check.True(t, w.before != nil && w.before.IDInUse() == id && w.before.Lent.Warm == warm.Owner, "before the other one ended there was %+v", w.before)
			check.Equal(t, "seen afterwards", w.seen != nil, taken)
			check.Equal(t, "status", op.Rec != nil && op.Dirty && op.Instead == warm.Owner, taken)
		})
	}
}
