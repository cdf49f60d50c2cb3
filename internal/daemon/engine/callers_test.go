package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

func ordinary(uid int) User { return User{ID: uid, Ordinary: true} }

func maxAttachments(n int) setup { return func(_ *fakeNode, o *Options) { o.MaxAttachments = n } }

// floods starts requests of two users and of root for more owners than there are processes.
func (f *fixture) floods(users ...User) {
	for i := range 10 {
		for _, u := range users {
			f.startAllocate(AllocateRequest{Owner: fmt.Sprintf("flood-%d-%d", u.ID, i), User: u})
		}
	}
}

// A request gets a plugin process that is reserved for its class, however many others wait.
//
//evidence:operate/security more requests than the daemon can serve
func TestReservedProcesses(t *testing.T) {
	twoUsers, andRoot := []User{ordinary(1000), ordinary(1001)}, []User{ordinary(1000), ordinary(1001), {}}
	for name, c := range map[string]struct {
		floods []User
		do     func(*fixture)
	}{
		"owner of root":              {twoUsers, func(f *fixture) { f.startAllocate(AllocateRequest{Owner: "any"}) }},
		"owner of the agent":         {twoUsers, func(f *fixture) { f.startAllocate(AllocateRequest{Owner: "router", User: ordinary(1002)}) }},
		"owner of the bridge":        {twoUsers, func(f *fixture) { f.startAllocate(AllocateRequest{Owner: "ciliumnode-1", User: ordinary(1002)}) }},
		"container":                  {twoUsers, (*fixture).startContainer},
		"container behind root, too": {andRoot, (*fixture).startContainer},
	} {
		run(t, name, with(ipv4Only, gatedAdd), func(f *fixture) {
			f.floods(c.floods...)
			synctest.Wait()
			before := f.freeProcesses()
			c.do(f)
			synctest.Wait()
			if n := f.freeProcesses(); n != before-1 {
				f.t.Errorf("%d plugin processes are free, and %d with one more request; want one less", before, n)
			}
			close(f.node.addGate)
			time.Sleep(time.Hour)
			if n := f.freeProcesses(); n != f.opts.MaxProcesses {
				f.t.Errorf("%d plugin processes are free at the end; want all", n)
			}
		})
	}
}

func (f *fixture) startContainer() {
	go func() { _, _ = f.AddContainer(context.Background(), "net", containerWith("container-1")) }()
}

// Users take turns, also if one of them has sent all its requests before the other.
//
//evidence:operate/security more requests than the daemon can serve
func TestTurns(t *testing.T) {
	run(t, "two users", with(ipv4Only, gatedAdd), func(f *fixture) {
		var calls []string
		f.onCall(func(verb string, c call.Call) {
			if verb == call.VerbAdd {
				calls = append(calls, c.Owner)
			}
		})
		f.floods(ordinary(1000))
		f.floods(ordinary(1001))
		synctest.Wait()
		close(f.node.addGate)
		time.Sleep(time.Hour)
		synctest.Wait()
		second := func(owner string) bool { return strings.HasPrefix(owner, "flood-1001-") }
		if n := slices.IndexFunc(calls, second); n < 0 || n > 4 || len(calls) != 20 {
			f.t.Errorf("the second user's first call was number %d of %q; want at most 4", n, calls)
		}
	})
}

// The queue has places for each class, and an ordinary user has a quarter at most.
//
//evidence:operate/security more requests than the daemon can serve
func TestQueueShares(t *testing.T) {
	run(t, "shares", with(ipv4Only, gatedAdd, maxQueued(16)), func(f *fixture) {
		try := func(owner string, u User) error { return f.try(AllocateRequest{Owner: owner, User: u}) }
		f.floods(ordinary(1000))
		f.wantError(try("more", ordinary(1000)), attachment.Busy, "4 requests of user ID 1000", "--max-queued-requests")
		f.floods(ordinary(1001))
		f.wantError(try("more", ordinary(1002)), attachment.Busy, "8 requests", "user ID 1002", "--max-queued-requests")
		f.floods(User{})
		f.wantError(try("more", User{}), attachment.Busy, "12 requests", "user ID 0")
		ended := make(chan error, 1)
		go func() {
			_, err := f.AddContainer(context.Background(), "net", containerWith("container-1"))
			ended <- err
		}()
		close(f.node.addGate)
		if err := <-ended; err != nil {
			f.t.Error(err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := len(f.callers.known); n != 0 {
			f.t.Errorf("%d callers are known after their requests; want none", n)
		}
		if err := try("more", ordinary(1000)); err != nil {
			f.t.Error(err)
		}
	})
}

//evidence:operate/security more owners than the node can have
func TestMaxAttachments(t *testing.T) {
	run(t, "limits", with(ipv4Only, maxAttachments(8)), func(f *fixture) {
		created := 0
		create := func(u User) error {
			created++
			return f.try(AllocateRequest{Owner: fmt.Sprint("owner-", created), User: u})
		}
		fill := func(n int, u User) {
			f.t.Helper()
			for range n {
				if err := create(u); err != nil {
					f.t.Error(err)
				}
			}
		}
		fill(4, ordinary(1000))
		f.wantError(create(ordinary(1000)), attachment.Forbidden, "user ID 1000 has 4 attachments", "--max-attachments")
		if _, err := f.AddContainer(context.Background(), "net", containerWith("container-1")); err != nil {
			f.t.Error(err)
		}
		fill(2, ordinary(1001))
		f.restart(maxAttachments(8)) // a start knows the users
		f.wantError(create(ordinary(1001)), attachment.Forbidden, "users other than root have 6 attachments")
		f.wantError(create(ordinary(1000)), attachment.Forbidden, "user ID 1000")
		if err := f.try(AllocateRequest{Owner: "owner-1", User: ordinary(1000)}); err != nil {
			f.t.Errorf("an owner with an attachment: %v", err)
		}
		fill(2, User{})
		f.wantError(create(User{}), attachment.Forbidden, "8 attachments", "--max-attachments")
		if _, err := f.AddContainer(context.Background(), "net", containerWith("container-2")); err != nil {
			f.t.Error(err)
		}
		for _, owner := range []string{"owner-1", "owner-2"} {
			if a, ok := f.Lookup(client.DefaultPool, owner); ok {
				f.releaseAll(a)
			}
		}
		fill(1, ordinary(1000))
		fill(1, ordinary(1001))
		f.wantError(create(User{}), attachment.Forbidden, "8 attachments")
	})
}
