package engine

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

// An attachment does not get the container ID of another one.
//
//evidence:operate/security two owners with one container ID, or a container with that of an owner
func TestAssignedID(t *testing.T) {
	run(t, "taken", "", func(f *fixture) {
		f.do("allocate router")
		op := f.lock("health")
		f.wantError(world{op}.AssignID(f.get("router").ContainerID), attachment.Failed, "health", "router", "release it there first")
		op.end()
		f.do("router = held 10.0.0.1 fd00::1")
	})
}

// held is durable, and the write that would undo it fails.
func TestNoDELWhileHeldIsOnDisk(t *testing.T) {
	run(t, "failed writes", "checked", func(f *fixture) {
		f.do("allocate router; clear")
		f.inject(func(step string) fault {
			switch {
			case step == "write held":
				return writeUnknown
			case step == "write adding" && len(f.node.store) > 0:
				return writeFailed
			}
			return noFault
		})
		f.do("allocate router -> ?; trace id; sleep 1h; count DEL 0 0; fault none; sleep 1h; stored 0")
	})
}

// The last DEL of an invocation begins when its ADD cannot act any more.
func TestLastDEL(t *testing.T) {
	for name, then := range map[string]string{
		"in another network": "set network=net2; allocate router; sleep 1h; release 10.0.0.1",
		// Each DEL takes longer than the ADD may act.
		"after a kill": "set call-time=300s; restart; sleep 2h",
	} {
		run(t, name, "unknown", func(f *fixture) {
			f.do("fault ADD#1=timeout-before; allocate router -> failed; fault none")
			deadline, last := time.Now().Add(240*time.Second), time.Time{}
			f.node.onCall = func(_ context.Context, verb string, c call.Call) {
				if verb == "DEL" && c.Invocation.Network == "net" {
					last = time.Now().Add(-f.node.callTime)
				}
			}
			f.do(then)
			if last.Before(deadline) {
				f.t.Errorf("the last DEL began at %v; the ADD may act until %v", last, deadline)
			}
			f.do("gone")
		})
	}
}

func TestLastFailure(t *testing.T) {
	run(t, "failed DEL", "ipv4", func(f *fixture) {
		want := func(owner string) {
			if got := f.LastFailure(); got.Owner != owner || owner == "" && got != (Failure{}) {
				f.t.Errorf("got %+v; want one of %q", got, owner)
			}
		}
		want("")
		f.do("allocate router; note router; fault DEL#1=refused")
		began := time.Now()
		_, _ = f.Release(f.t.Context(), ReleaseRequest{IP: addr("10.0.0.1")})
		last := f.LastFailure()
		if last.Owner != "router" || last.Pool != client.DefaultPool || last.ContainerID != f.noted ||
			!strings.Contains(last.Text, "could not be released") || !last.At.Equal(began) {
			f.t.Errorf("got %+v", last)
		}
		// It is shown with the owner and the pool.
		if got := f.get("router").LastError; !strings.HasPrefix(got, "could not be released; ") || !strings.HasSuffix(last.Text, got) {
			f.t.Errorf("the attachment has the error %q; want that without owner and pool", got)
		}
		f.do("sleep 1m; gone")
		want("")
		f.do("allocate router; fault DEL#1=refused; release 10.0.0.1 -> failed; allocate health")
		want("router") // after a success of another attachment
	})
}

func TestRequestID(t *testing.T) {
	run(t, "lines and calls of a request", "ipv4", func(f *fixture) {
		f.do("allocate router; clear; store a-pod 10.0.0.1")
		f.logged.Reset()
		var ids []string
		f.node.onCall = func(ctx context.Context, _ string, _ call.Call) { ids = append(ids, logging.RequestID(ctx)) }
		ctx, cancel := context.WithCancel(logging.WithRequestID(context.Background(), "abc"))
		del := nth(2, "DEL", refused)
		f.inject(func(step string) fault { // the second DEL before an ADD fails, and the client leaves
			injected := del(step)
			if injected != noFault {
				cancel()
			}
			return injected
		})
		_, _ = f.Allocate(ctx, AllocateRequest{Owner: "router"})
		synctest.Wait()
		for _, line := range f.logged.AllEntries() {
			ids = append(ids, fmt.Sprint(line.Data["requestID"]))
		}
		// CHECK, DEL, ADD, DEL, DEL; and the lines: lost, DEL failed, the client had left
		if want := slices.Repeat([]string{"abc"}, 5+3); !slices.Equal(ids, want) {
			f.t.Errorf("calls and lines have the request IDs %q; want %q", ids, want)
		}
	})
}

// After a rollback the plugin itself adds the container ID again: the daemon leaves that to it, and nothing else.
func TestLostInPartAndAddedAgain(t *testing.T) {
	run(t, "rolled back", "readable", func(f *fixture) {
		f.do("add one web-one; store one fd00::1")
		op := f.lock("router")
		world{op}.Settle(attachment.Other{Key: attachment.Key{Pool: client.DefaultPool, Owner: attachment.ContainerOwner("one", "eth0")}}, attachment.Doubted, false)
		op.end()
		f.do("sleep 1s; allocate router; release-all router; store one 10.0.0.3 fd00::3; restart readable bare; records 0; stored 1")
	})
}

// Each change of the journal is passed on. That of an owner is the end of the one and the begin of the other.
func TestChanged(t *testing.T) {
	var mu sync.Mutex
	changes := map[string]string{} // by kind of owner: the next lease is acquired beside the hand-over of the first
	synctest.Test(t, func(t *testing.T) {
		n, o := newFakeNode(), defaultOptions()
		setUp(n, &o, "remote warm=1")
		o.Changed = func(before, after attachment.Record) {
			kind, _, _ := strings.Cut(cmp.Or(before.Owner, after.Owner), "/")
			mu.Lock()
			defer mu.Unlock()
			changes[kind] += fmt.Sprintf("%s > %s; ", before.State, after.State)
		}
		f := &fixture{t: t, node: n, Engine: n.start(t, o)}
		f.do("warm 1; add one web-0; warm 1; del one web-0; warm 2")
		f.do("release " + f.List()[0].Addrs()[0].String())
	})
	acquired := " > adding; adding > held; "
	want := map[string]string{
		"cni":  " > held; held > cooldown; ",
		"warm": acquired + acquired + " > held; held > releasing; releasing > ; ",
	}
	if !maps.Equal(changes, want) {
		t.Errorf("got  %q\nwant %q", changes, want)
	}
}
