package lostnodes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/containerid"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

type fakePlugin struct {
	profile profile.Profile
	// invalid is the error of NewInvocation.
	invalid error
	// fail returns the error of the nth DEL; nil for none.
	fail func(n int) error
	dels []call.Call
}

func (f *fakePlugin) NewInvocation(_ context.Context, n call.Network, containerID, owner string) (call.Invocation, error) {
	return call.Invocation{ContainerID: containerID, Network: n.Name, Args: owner + " " + containerID, Profile: f.profile}, f.invalid
}

func (f *fakePlugin) Del(_ context.Context, c call.Call) error {
	f.dels = append(f.dels, c)
	if f.fail == nil {
		return nil
	}
	return f.fail(len(f.dels))
}

func newReclaim(f *fakePlugin) Reclaim {
	f.profile = profile.Profile{Type: "central", Store: profile.StoreRemote, Del: profile.DelReleased, DelFromAnyNode: true}
	return Reclaim{
		Plugin: f, Self: "here", Now: func() time.Time { return noon }, Daemon: func(string, string) string { return "" },
		Networks: []call.Network{{Name: "pods"}, {Name: "blue-network"}},
	}
}

func both() []string { return []string{"pods", "blue-network"} }

func lost() []Target {
	return append(Targets("gone", []string{"router", "health"}, both(), 0), Targets("gone-too", []string{"router"}, both(), 0)...)
}

// The calls are the same as of the lost daemon: its container IDs, and arguments made from the first one.
func TestRun(t *testing.T) {
	f := &fakePlugin{}
	targets := Targets("gone", []string{"router", "health"}, both(), 1)
	results := newReclaim(f).Run(t.Context(), targets)
	var got, want []string
	for i, target := range targets {
		want = append(want, target.Network+" "+target.Owner+" "+target.ContainerID+" "+target.Owner+" "+containerid.For(target.Owner, "gone", target.Network))
		target.State = Released
		check.Equal(t, "result", results[i], target)
	}
	for _, c := range f.dels {
		got = append(got, c.Invocation.Network+" "+c.Owner+" "+c.Invocation.ContainerID+" "+c.Invocation.Args)
	}
	check.Equal(t, "DELs", got, want)
}

// Only an ID of a daemon is released, and only in a network that has a pool.
func TestForeignTarget(t *testing.T) {
	f := &fakePlugin{}
	bad := Targets("gone", []string{"router"}, []string{"other", "pods"}, 0)
	bad[1].ContainerID = "8f0e3e1c"
	for _, r := range newReclaim(f).Run(t.Context(), bad) {
		check.Equal(t, "state of "+r.Error, r.State, Failed)
		check.Contains(t, r.Error, r.ContainerID, r.Network)
	}
	check.Equal(t, "DELs", len(f.dels), 0)
}

func TestDryRun(t *testing.T) {
	f := &fakePlugin{}
	o := newReclaim(f)
	o.DryRun = true
	if got := states(o.Run(t.Context(), lost())); got != "6 would-release" || len(f.dels) != 0 {
		t.Errorf("got %s and %d DELs; want none", got, len(f.dels))
	}
}

// states counts results that follow each other with the same state.
func states(all []Target) string {
	var runs []string
	for i := 0; i < len(all); {
		n := 1
		for i+n < len(all) && all[i+n].State == all[i].State {
			n++
		}
		runs = append(runs, fmt.Sprintf("%d %s", n, all[i].State))
		i += n
	}
	return strings.Join(runs, ", ")
}

func TestFailures(t *testing.T) {
	away := errors.New("the server is away")
	pods := []string{"pods"}
	one := Targets("gone", []string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}, pods, 0)
	two := append(Targets("bad", []string{"0", "1", "2", "3", "4", "5", "6", "7"}, pods, 0), Targets("next", []string{"good"}, pods, 0)...)
	for name, c := range map[string]struct {
		targets []Target
		fails   func(n int, owner string) bool
		want    string
	}{
		"one":     {one, func(n int, _ string) bool { return n == 2 }, "1 released, 1 failed, 8 released"},
		"each":    {one, func(int, string) bool { return true }, "5 failed, 5 not-tried"},
		"spread":  {one, func(n int, _ string) bool { return n%2 == 1 }, strings.Repeat("1 failed, 1 released, ", 4) + "1 failed, 1 released"},
		"no more": {one, func(n int, _ string) bool { return n > 4 }, "4 released, 5 failed, 1 not-tried"},
		// The other nodes are tried, each once while all fail.
		"one node":   {two, func(_ int, owner string) bool { return owner != "good" }, "5 failed, 3 not-tried, 1 released"},
		"every node": {two, func(int, string) bool { return true }, "5 failed, 3 not-tried, 1 failed"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fakePlugin{}
			f.fail = func(n int) error {
				if c.fails(n, f.dels[n-1].Owner) {
					return away
				}
				return nil
			}
			o := newReclaim(f)
			o.Networks = o.Networks[:1]
			results := o.Run(t.Context(), c.targets)
			check.Equal(t, "results", states(results), c.want)
			for _, r := range results {
				check.Equal(t, fmt.Sprintf("%s has failed, with the error %q", r.Owner, r.Error), r.State == Failed, strings.Contains(r.Error, "away"))
			}
		})
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	f := &fakePlugin{fail: func(n int) error {
		if n == 2 {
			cancel()
		}
		return nil
	}}
	check.Equal(t, "results", states(newReclaim(f).Run(ctx, lost())), "2 released, 4 not-tried")
}

// A node that was begun in time is finished: half a node would be reported as failed.
func TestUntil(t *testing.T) {
	now := noon
	f := &fakePlugin{fail: func(int) error { now = now.Add(time.Minute); return nil }}
	o := newReclaim(f)
	o.Now, o.Until = func() time.Time { return now }, noon.Add(3*time.Minute)
	check.Equal(t, "results", states(o.Run(t.Context(), lost())), "4 released, 2 not-tried")
}

func TestCheck(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*fakePlugin, *Reclaim)
		want   string
		// node reports whether the error is about one node.
		node bool
	}{
		"nothing wrong":      {func(*fakePlugin, *Reclaim) {}, "", false},
		"this node":          {func(_ *fakePlugin, o *Reclaim) { o.Self = "gone-too" }, "gone-too is this node", true},
		"no plugin":          {func(f *fakePlugin, _ *Reclaim) { f.invalid = errors.New("not found") }, `network "pods": not found`, false},
		"store on the node":  {func(f *fakePlugin, _ *Reclaim) { f.profile.Store = profile.StoreNode }, "keeps its allocations on the node", false},
		"single-use IDs":     {func(f *fakePlugin, _ *Reclaim) { f.profile.Del = profile.DelQueued }, "random digits", false},
		"not known to do it": {func(f *fakePlugin, _ *Reclaim) { f.profile.DelFromAnyNode = false }, "delFromAnyNode", false},
		"its daemon runs here": {func(_ *fakePlugin, o *Reclaim) {
			o.Daemon = func(node, network string) string {
				return map[string]string{"gone-too blue-network": "PID 7"}[node+" "+network]
			}
		}, `the daemon of node gone-too and network "blue-network" runs on this machine (PID 7)`, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fakePlugin{}
			o := newReclaim(f)
			c.change(f, &o)
			err := o.Check(t.Context())
			o.DryRun = true
			results := o.Run(t.Context(), lost())
			if got := states(results); c.node && got != "4 would-release, 1 failed, 1 not-tried" {
				t.Errorf("got %s; want the node to fail alone", got)
			} else if c.node {
				err = errors.New(results[4].Error)
			}
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v; want %q", err, c.want)
			}
			check.Equal(t, "plugin calls of a dry run", len(f.dels), 0)
		})
	}
}
