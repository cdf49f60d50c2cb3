package profiletry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// wantHeldReported wants each ID that the store holds as a leftover with its DEL, and in the error.
func wantHeldReported(t *testing.T, f *fakePlugin, r Report, err error) {
	t.Helper()
	for id := range f.store {
		i := slices.IndexFunc(r.Leftovers, func(l Leftover) bool { return l.ContainerID == id })
		if i < 0 || r.Leftovers[i].Command != "DEL "+id || err == nil || !strings.Contains(err.Error(), id) {
			t.Errorf("the store holds %s, leftovers %+v, error %v; want it reported with its DEL", id, r.Leftovers, err)
		}
	}
}

// failing returns a fakePlugin.before by which the calls that match fail.
func failing(match func(n int, verb string) bool, e call.Error, done bool) func(int, string) (*call.Error, bool) {
	return func(n int, verb string) (*call.Error, bool) {
		if !match(n, verb) {
			return nil, true
		}
		return &e, done
	}
}

func isVerb(want string) func(int, string) bool {
	return func(_ int, verb string) bool { return verb == want }
}

func isCall(want int) func(int, string) bool { return func(n int, _ string) bool { return n == want } }

// callsOf returns the number of calls of a run in which nothing fails.
func callsOf(t *testing.T, w ways, p profile.Profile) int {
	t.Helper()
	f := newFake(t, w)
	if _, err := Run(t.Context(), f.options(p)); err != nil {
		t.Fatal(err)
	}
	return f.calls
}

// Whichever call fails, and however: nothing is left behind.
func TestOneFailure(t *testing.T) {
	behaviours := map[string]ways{
		"refused":     {requests: map[string]string{"CNI_ARGS address": "honour"}},
		"another":     {repeated: profile.RepeatedAddAnotherAddress, check: "always"},
		"allocating":  {repeated: profile.RepeatedAddSameAnswer, check: "allocating"},
		"small pool":  {pool: 2, check: "address"},
		"one address": {same: true, check: "always"},
	}
	for name, w := range behaviours {
		for _, outcome := range []call.Outcome{call.NotStarted, call.Refused, call.Unknown} {
			for _, done := range []bool{false, true} {
				if outcome == call.NotStarted && done {
					continue // contradictory
				}
				t.Run(fmt.Sprintf("%s, %s, done %v", name, outcome, done), func(t *testing.T) {
					p := used(t, "host-local") // no ADD outlives its process
					for at := range callsOf(t, w, p) {
						f := newFake(t, w)
						e := call.Error{Outcome: outcome, Code: 999, Msg: "failed", Err: errors.New("failed")}
						f.before = failing(isCall(at+1), e, done)
						r, err := Run(t.Context(), f.options(p))
						if len(f.store) != 0 || len(r.Leftovers) != 0 {
							t.Errorf("call %d fails: the store holds %v, leftovers %v", at+1, f.store, r.Leftovers)
						}
						if (r.Proposal == nil) && err == nil {
							t.Errorf("call %d fails: got neither a proposal nor an error", at+1)
						}
					}
				})
			}
		}
	}
}

// From some call on every one fails: held addresses are reported.
func TestLastingFailure(t *testing.T) {
	w := ways{repeated: profile.RepeatedAddAnotherAddress, check: "allocating"}
	for _, outcome := range []call.Outcome{call.NotStarted, call.Refused, call.Unknown} {
		t.Run(string(outcome), func(t *testing.T) {
			p := used(t, "host-local")
			reported := 0
			for at := range callsOf(t, w, p) {
				f := newFake(t, w)
				f.before = func(n int, _ string) (*call.Error, bool) {
					if n <= at {
						return nil, true
					}
					return &call.Error{Outcome: outcome, Code: 999, Err: errors.New("failed")}, outcome == call.Unknown && n == at+1
				}
				r, err := Run(t.Context(), f.options(p))
				wantHeldReported(t, f, r, err)
				reported += len(r.Leftovers)
			}
			check.True(t, reported != 0, "nothing was ever held when the failures began; nothing is compared")
		})
	}
}

// At any interruption of the command, everything is released, and no proposal is made.
func TestInterrupted(t *testing.T) {
	w := ways{check: "allocating", repeated: profile.RepeatedAddSameAnswer}
	p := used(t, "dhcp")
	for at := range callsOf(t, w, p) - 1 {
		ctx, cancel := context.WithCancel(t.Context())
		f := newFake(t, w)
		f.before = func(n int, _ string) (*call.Error, bool) {
			if n == at+1 {
				cancel()
			}
			return nil, true
		}
		r, err := Run(ctx, f.options(p))
		if len(f.store) != 0 || len(r.Leftovers) != 0 {
			t.Errorf("interrupted in call %d: the store holds %v, leftovers %v", at+1, f.store, r.Leftovers)
		}
		if r.Proposal != nil || err == nil || !strings.Contains(err.Error(), "interrupted") {
			t.Errorf("interrupted in call %d: got proposal %v and error %v, want that it was interrupted", at+1, r.Proposal, err)
		}
	}
}

// An ADD with an unknown outcome that allocates only after the end of Run.
func TestLateAdd(t *testing.T) {
	f := newFake(t, ways{})
	secondAdd := isCall(5) // the ADD of the second ID
	f.before = failing(secondAdd, call.Error{Outcome: call.Unknown, Err: errors.New("timed out")}, false)
	p := used(t, "host-local")
	p.AddOutlivesSeconds = 208
	r, err := Run(t.Context(), f.options(p))
	f.store[fakeIDPrefix+"-2"] = append(f.store[fakeIDPrefix+"-2"], addr(7))
	wantHeldReported(t, f, r, err)
	if len(r.Leftovers) != 1 || r.Leftovers[0].AfterSeconds != 208 {
		t.Fatalf("got leftovers %+v, want one after 208 s", r.Leftovers)
	}
	last := slices.IndexFunc(r.Steps, func(s Step) bool { return s.Verb == call.VerbDel && s.ContainerID == fakeIDPrefix+"-2" })
	check.True(t, last >= 0, "got %+v, want a DEL of the second ID", r.Steps)
	adds := 0
	for _, s := range r.Steps {
		if s.Verb == call.VerbAdd {
			adds++
		}
	}
	if adds != 2 || r.Proposal != nil {
		t.Errorf("got %d ADDs, proposal %v; want no ADD after the unknown one, and no proposal", adds, r.Proposal)
	}
}

func TestFirstAddFails(t *testing.T) {
	for message, want := range map[string][]string{
		"no IP addresses available":                      {`network "net"`, "10-net.conflist"},
		"stat NETNS: no such file or directory":          {"namespace that exists, or another one? --cni-netns names it"},
		`pods "delegated-ipam/" + ID not found`:          {`network "net"`},
		"failed to get Pod delegated-ipam/ID: not found": {`existing pods alone? It cannot be tried: write its profile, with podIdentity "given"`},
	} {
		f := newFake(t, ways{})
		message = strings.NewReplacer("NETNS", "/none", "delegated-ipam/ID", "delegated-ipam/"+fakeIDPrefix+"-1").Replace(message)
		f.before = failing(isVerb(call.VerbAdd), call.Error{Outcome: call.Refused, Code: 999, Msg: message}, false)
		r, err := Run(t.Context(), f.options(used(t, profile.Unknown)))
		if err == nil || r.Proposal != nil {
			t.Fatalf("got %v and proposal %v, want an error", err, r.Proposal)
		}
		check.Error(t, err, append(want, message, "expected an address")...)
	}
}

// A DEL that fails once at the end is repeated.
func TestReleaseRepeated(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	f := newFake(t, ways{})
	f.before = func(n int, verb string) (*call.Error, bool) {
		if verb == call.VerbAdd {
			cancel()
		}
		if n == 4 { // STATUS, DEL and ADD came before
			return &call.Error{Outcome: call.Refused, Code: 11, Msg: "try again later"}, false
		}
		return nil, true
	}
	r, _ := Run(ctx, f.options(used(t, "host-local")))
	if len(f.store) != 0 || len(r.Leftovers) != 0 || f.calls != 5 {
		t.Errorf("the store holds %v after %d calls, leftovers %v; want none after 5", f.store, f.calls, r.Leftovers)
	}
}

// A plugin whose DEL hangs gets no ADD.
func TestFirstDelHangs(t *testing.T) {
	f := newFake(t, ways{})
	f.before = failing(isVerb(call.VerbDel), call.Error{Outcome: call.Unknown, Err: errors.New("timed out")}, false)
	r, err := Run(t.Context(), f.options(used(t, "host-local")))
	if err == nil || r.Proposal != nil || len(r.Leftovers) != 0 || f.calls != 2 {
		t.Errorf("got %v, proposal %v, leftovers %v after %d calls; want an error after STATUS and DEL", err, r.Proposal, r.Leftovers, f.calls)
	}
}
