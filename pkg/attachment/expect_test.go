package attachment

import (
	"slices"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/pkg/defaults"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/profile"
)

// wantExpected checks what was expected since the last time, and that it was before
// anything was written or asked.
func (s scene) wantExpected(want ...string) {
	s.Helper()
	s.mu()
	defer s.fakeNode.mu.Unlock()
	var got []string
	for _, e := range s.expected {
		got = append(got, e.verbs...)
		if len(e.verbs) > 0 && e.after != 0 {
			s.Errorf("%v were expected after %v", e.verbs, s.calls[:e.after])
		}
	}
	if !slices.Equal(got, want) {
		s.Errorf("expected was %q; want %q", got, want)
	}
	if s.standing != 0 {
		s.Errorf("%d times it was not taken back", s.standing)
	}
	s.expected, s.calls = nil, nil
}

func TestThePluginIsToldWhatComesNext(t *testing.T) {
	const del, add = "DEL cilium-agent-router-", "ADD cilium-agent-router-"
	id := func(s scene) string {
		a, _ := s.Lookup(defaults.Pool, "router")
		return a.ContainerID[len("cilium-agent-router-"):]
	}
	play(t, "DEL and ADD before a new owner is written down", nil, func(s scene) {
		s.allocate("router")
		s.wantExpected(del+id(s), add+id(s))
	})
	play(t, "nothing for what is held", nil, func(s scene) {
		s.allocate("router")
		s.said()
		s.expected = nil
		s.allocate("router")
		s.wantExpected()
	})
	play(t, "DEL before a release is written down", nil, func(s scene) {
		a := s.allocate("router")
		want := del + id(s)
		s.said()
		s.expected = nil
		for _, ip := range a.Addrs() {
			s.wantExpected() // not for a claim beside which there is another
			if err := s.giveBack(ip.String()); err != nil {
				s.Fatal(err)
			}
		}
		s.wantExpected(want)
	})
	play(t, "ADD alone where it may be repeated", func(w *fakeNode) { w.profile.RepeatedAdd = profile.RepeatedAddSameAnswer }, func(s scene) {
		s.allocate("router")
		s.wantExpected(add + id(s))
	})
	play(t, "no more than one call where no other process has room", nil, func(s scene) {
		s.allocate("router")
		s.wantExpected(del + id(s))
	}, func(o *Options) { o.MaxProcesses = 1 })
	play(t, "no more than one call in the background", nil, func(s scene) {
		s.allocate("router")
		s.wipe()
		s.expected = nil
		s = s.again()
		if n := len(s.expected); n != 1 || len(s.expected[0].verbs) != 1 {
			s.Errorf("expected was %v; want one call at a time", s.expected)
		}
	})
}
