package attachment

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

// free is how many plugin processes more may run now.
func (s scene) free() int {
	n := 0
	for s.processes.TryAcquire(1) {
		n++
	}
	s.processes.Release(int64(n))
	return n
}

// watchFree notes, at each call of the plugin, how many processes more may run.
func (s scene) watchFree() *[]int {
	var at []int
	s.fakeNode.mu.Lock()
	defer s.fakeNode.mu.Unlock()
	s.watch = func(string, call.Call) { at = append(at, s.free()) }
	return &at
}

func TestASlotForAProcessThatStandsByIsGivenBackInTime(t *testing.T) {
	two := func(o *Options) { o.MaxProcesses = 2 }
	check := func(s scene, at []int, want ...int) {
		s.Helper()
		if !slices.Equal(at, want) {
			s.Errorf("at each call %v processes more might run; want %v", at, want)
		}
		synctest.Wait() // who was answered may have its slot still
		if n := s.free(); n != 2 {
			s.Errorf("%d of 2 processes may run afterwards", n)
		}
	}
	play(t, "by an allocate after its DEL", nil, func(s scene) {
		at := s.watchFree()
		s.allocate("router")
		check(s, *at, 0, 1)
	}, two)
	play(t, "by a release after its first DEL", nil, func(s scene) {
		a := s.allocate("router")
		s.addContext("router", "/another")
		at := s.watchFree()
		for _, ip := range a.Addrs() {
			s.skipDelay(ip.String())
		}
		check(s, *at, 0, 1)
	}, two)
	play(t, "by an allocate that the journal refuses", func(w *fakeNode) { w.fault = always("write adding", diskBefore) }, func(s scene) {
		at := s.watchFree()
		if _, err := s.Allocate(context.Background(), AllocateRequest{Owner: "router"}); err == nil {
			s.Error("it succeeded")
		}
		check(s, *at)
	}, two)
	play(t, "never taken for a plugin that does not wait for its configuration", func(w *fakeNode) { w.profile.WaitsForConfig = false }, func(s scene) {
		at := s.watchFree()
		s.allocate("router")
		check(s, *at, 1, 1)
	}, two)
}

// addContext adds to the record of an owner the context of an earlier ADD.
func (s scene) addContext(owner, netns string) {
	s.Helper()
	o := s.turnAt(owner)
	defer o.unlock()
	earlier := o.lastInvocation()
	earlier.NetNS = netns
	r := o.entry.rec.Clone()
	r.Invocations = slices.Insert(r.Invocations, 0, earlier)
	if err := o.write(r); err != nil {
		s.Fatal(err)
	}
}

func TestNothingIsBegunForAClientThatIsGoneAlready(t *testing.T) {
	for name, f := range map[string]record.Family{"of both families": "", "of one": record.IPv4} {
		play(t, name, nil, func(s scene) {
			gone, leave := context.WithCancel(context.Background())
			leave()
			if _, err := s.Allocate(gone, AllocateRequest{Owner: "router", Family: f}); err == nil {
				s.Error("it was answered")
			}
			synctest.Wait()
			s.fakeNode.mu.Lock()
			defer s.fakeNode.mu.Unlock()
			if len(s.calls) > 0 {
				s.Errorf("%q was done", s.calls)
			}
		})
	}
}
