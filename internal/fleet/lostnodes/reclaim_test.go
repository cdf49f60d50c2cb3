package lostnodes

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
		Plugin: f, Self: "here", Now: func() time.Time { return noon }, Sidecar: func(string, string) string { return "" },
		Pools: []Pool{{"default", call.Network{Name: "pods"}}, {"blue", call.Network{Name: "blue-network"}}},
	}
}

func lost() []Node {
	return []Node{{Name: "gone", Owners: []string{"router", "health"}}, {Name: "gone-too", Owners: []string{"router"}}}
}

// The calls are the same as of the lost sidecar: its container IDs, and arguments made from the first one.
func TestRun(t *testing.T) {
	f := &fakePlugin{}
	o := newReclaim(f)
	nodes := lost()
	nodes[0].Generations, nodes[1].Generations = 1, 1
	results := o.Run(t.Context(), nodes)
	var want []string
	for _, n := range lost() {
		for _, network := range []string{"pods", "blue-network"} {
			for _, owner := range n.Owners {
				id := containerid.For(owner, n.Name, network)
				want = append(want, id+" "+owner+" "+id, id+"-g1 "+owner+" "+id)
			}
		}
	}
	var got []string
	for i, c := range f.dels {
		got = append(got, c.ContainerID+" "+c.Invocation.Args)
		if r := results[i]; r.ContainerID != c.ContainerID || r.State != Released || r.Owner != c.Owner || r.Pool != c.Pool {
			t.Errorf("the result of %+v is %+v", c, r)
		}
	}
	if !slices.Equal(got, want) || len(results) != len(want) {
		t.Errorf("got the DELs\n%q and %d results; want\n%q", got, len(results), want)
	}
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
func states(all []Result) string {
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
	one := []Node{{Name: "gone", Owners: []string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}}}
	two := []Node{{Name: "bad", Owners: []string{"0", "1", "2", "3", "4", "5", "6", "7"}}, {Name: "next", Owners: []string{"good"}}}
	for name, c := range map[string]struct {
		nodes []Node
		fails func(n int, owner string) bool
		want  string
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
			o.Pools = o.Pools[:1]
			results := o.Run(t.Context(), c.nodes)
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
		"no plugin":          {func(f *fakePlugin, _ *Reclaim) { f.invalid = errors.New("not found") }, `pool "default": not found`, false},
		"store on the node":  {func(f *fakePlugin, _ *Reclaim) { f.profile.Store = profile.StoreNode }, "keeps its allocations on the node", false},
		"single-use IDs":     {func(f *fakePlugin, _ *Reclaim) { f.profile.Del = profile.DelQueued }, "random digits", false},
		"not known to do it": {func(f *fakePlugin, _ *Reclaim) { f.profile.DelFromAnyNode = false }, "delFromAnyNode", false},
		"its sidecar runs here": {func(_ *fakePlugin, o *Reclaim) {
			o.Sidecar = func(node, network string) string {
				return map[string]string{"gone-too blue-network": "PID 7"}[node+" "+network]
			}
		}, `the sidecar of node gone-too and network "blue-network" runs on this machine (PID 7)`, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fakePlugin{}
			o := newReclaim(f)
			c.change(f, &o)
			err := o.Check(t.Context())
			o.DryRun = true
			results := o.Run(t.Context(), lost()[1:])
			if got := states(results); c.node && got != "1 failed" {
				t.Errorf("got %s; want the node to fail alone", got)
			} else if c.node {
				err = errors.New(results[0].Error)
			}
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v; want %q", err, c.want)
			}
			check.Equal(t, "plugin calls of a dry run", len(f.dels), 0)
		})
	}
}
