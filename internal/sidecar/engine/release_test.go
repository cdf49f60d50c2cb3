package engine

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/engine/protocol"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

func TestRelease(t *testing.T) {
	run(t, "claim by claim", nil, func(f *fixture) {
		f.given("router")
		f.release("10.0.0.1")
		f.wantSteps("write held")
		f.wantError(f.tryRelease("10.0.0.1"), protocol.NotFound)
		f.release("fd00::1")
		f.wantSteps("write releasing, DEL, remove")
		f.wantNone()
	})
	run(t, "address changes while the release waits", nil, func(f *fixture) {
		f.allocate("router")
		f.clearStore()
		f.setStored("a-pod", "10.0.0.1")
		f.node.addGate = make(chan struct{})
		go f.tryAllocate("router") //nolint:errcheck // the attachment is checked below
		synctest.Wait()
		released := make(chan error)
		go func() { released <- f.tryRelease("10.0.0.1") }()
		synctest.Wait()
		for range 3 { // ADDs for both addresses, for each separately
			f.node.addGate <- struct{}{}
		}
		f.wantError(<-released, protocol.NotFound)
		f.wantHeld("router", "10.0.0.2")
	})
	run(t, "failed DEL is retried", with(ipv4Only), func(f *fixture) {
		f.allocate("router")
		f.inject(always(notStarted, "DEL"))
		f.wantError(f.tryRelease("10.0.0.1"), protocol.Failed, "retried", "router")
		time.Sleep(30 * time.Minute)
		f.wantStored(1)
		if state := f.get("router").State; state != record.Releasing {
			f.t.Fatalf("state %q; want releasing", state)
		}
		f.inject(nil)
		f.sleep(10 * time.Minute)
		f.wantNone()
	})
	run(t, "repeated release retries immediately", with(ipv4Only), func(f *fixture) {
		f.allocate("router")
		f.inject(once("DEL", notStarted))
		f.wantError(f.tryRelease("10.0.0.1"), protocol.Failed)
		f.release("10.0.0.1")
		f.wantStored(0)
	})
	run(t, "last failure", with(ipv4Only), func(f *fixture) {
		if last := f.LastFailure(); last.Text != "" || !last.At.IsZero() {
			f.t.Errorf("before any failure: %+v", last)
		}
		a := f.allocate("router")
		f.inject(once("DEL", refused))
		began := time.Now()
		f.wantError(f.tryRelease("10.0.0.1"), protocol.Failed)
		last := f.LastFailure()
		if last.Owner != "router" || last.Pool != client.DefaultPool || last.ContainerID != a.ContainerID ||
			!strings.Contains(last.Text, "could not be released") || !last.At.Equal(began) {
			f.t.Errorf("got %+v", last)
		}
		// It is shown with the owner and the pool.
		if got := f.get("router").LastError; !strings.HasPrefix(got, "could not be released; ") || !strings.HasSuffix(last.Text, got) {
			f.t.Errorf("the attachment has the error %q; want that without owner and pool", got)
		}
		f.sleep(time.Minute)
		f.wantNoAttachment()
		if now := f.LastFailure(); now != (Failure{}) {
			f.t.Errorf("after the retry: %+v; want none", now)
		}
		f.allocate("router")
		f.inject(once("DEL", refused))
		f.wantError(f.tryRelease("10.0.0.1"), protocol.Failed)
		f.allocate("health")
		if now := f.LastFailure(); now.Owner != "router" {
			f.t.Errorf("after a success of another attachment: %+v; want the one of the router", now)
		}
	})
	run(t, "generated owner leaves no tombstone", with(withProfile(singleUseIDs()), ipv4Only), func(f *fixture) {
		f.releaseAll(f.allocate(""))
		f.wantRecords(0)
	})
}

// A power loss may bring a removed record back. Its DEL frees nothing that was allocated meanwhile, or
// the record is removed durably.
func TestRemovalLost(t *testing.T) {
	run(t, "a pod has the address", with(ipv4Only), func(f *fixture) {
		f.allocate("router")
		f.release("10.0.0.1")
		f.setStored("a-pod", "10.0.0.1")
		f.node.losePower()
		f.wantRecords(1)
		f.restart(rebooted)
		f.wantSteps("write releasing, DEL, remove")
		f.wantNoAttachment()
		f.wantRecords(0)
		f.wantStored(1)
	})
	durable := func(t *testing.T, f *fixture) {
		t.Helper()
		if f.node.losePower(); len(f.node.records) != 0 {
			t.Errorf("%v came back", f.node.records)
		}
	}
	run(t, "a plugin whose DEL may release by address", with(unknownPlugin), func(f *fixture) {
		f.allocate("router")
		f.release("10.0.0.1")
		durable(f.t, f)
	})
	run(t, "discarded", with(ipv4Only), func(f *fixture) {
		f.allocate("router")
		f.inject(always(refused, "DEL"))
		if _, _, err := f.Discard(f.t.Context(), client.DefaultPool, "router"); err != nil {
			f.t.Fatal(err)
		}
		durable(f.t, f)
	})
}

func TestReleaseDelay(t *testing.T) {
	delay := releaseDelay(time.Minute)
	run(t, "cooldown, then DEL", with(ipv4Only, delay), func(f *fixture) {
		f.given("router")
		f.release("10.0.0.1")
		f.wantSteps("write cooldown")
		if a := f.allocate("health"); a.Holds(addr("10.0.0.1")) {
			f.t.Error("an address in cooldown was allocated to another owner")
		}
		f.steps()
		f.sleep(time.Minute)
		f.wantSteps("write releasing, DEL, remove")
	})
	run(t, "skipped", with(delay), func(f *fixture) {
		f.given("router")
		f.releaseNow("10.0.0.1")
		f.wantSteps("write held") // the other family is still claimed
		f.releaseNow("fd00::1")
		f.wantSteps("write releasing, DEL, remove")
	})
	run(t, "skipped in cooldown", with(ipv4Only, delay), func(f *fixture) {
		f.allocate("router")
		f.release("10.0.0.1")
		f.steps()
		f.wantError(f.tryRelease("10.0.0.1"), protocol.NotFound, "not allocated")
		f.wantSteps("")
		f.releaseNow("10.0.0.1")
		f.wantSteps("write releasing, DEL, remove")
		f.wantError(f.try(ReleaseRequest{IP: addr("10.0.0.1"), SkipDelay: true}), protocol.NotFound)
	})
}

// Abandon releases an attachment whose client did not receive the response.
func TestAbandon(t *testing.T) {
	delay := releaseDelay(time.Hour)
	run(t, "without the release delay", with(delay), func(f *fixture) {
		a := f.allocate("")
		f.steps()
		f.Abandon(context.Background(), a.Pool, a.Owner)
		if got := f.steps(); strings.Count(got, "write releasing") != 1 {
			f.t.Errorf("steps %s; want the record written as releasing once", got)
		}
		synctest.Wait()
		f.wantGone()
	})
	for name, injected := range map[string]func(string) fault{
		"failed DEL":   once("DEL", refused),
		"failed write": once("write releasing", writeFailed),
	} {
		run(t, name+" is retried", with(delay), func(f *fixture) {
			a := f.allocate("")
			f.inject(injected)
			f.Abandon(context.Background(), a.Pool, a.Owner)
			f.sleep(time.Minute)
			f.wantGone()
			for _, e := range f.takeEvents() {
				if strings.HasPrefix(e, string(protocol.Retire)) {
					f.t.Errorf("event %q without --retire-owners", e)
				}
			}
		})
	}
	run(t, "failed write after the client left is retried", with(delay, gatedAdd), func(f *fixture) {
		ctx, cancel := context.WithCancel(context.Background())
		go f.Allocate(ctx, AllocateRequest{}) //nolint:errcheck // its client leaves
		synctest.Wait()
		cancel()
		f.inject(once("write releasing", writeFailed))
		f.node.addGate <- struct{}{}
		f.sleep(time.Minute)
		f.wantGone()
	})
	run(t, "next start completes it", with(delay), func(f *fixture) {
		a := f.allocate("")
		stop(f.t, f.Engine)
		f.steps()
		f.Abandon(context.Background(), a.Pool, a.Owner)
		f.wantSteps("write releasing")
		f.wantStored(1)
		f.start()
		synctest.Wait()
		f.wantGone()
	})
	run(t, "once", nil, func(f *fixture) {
		a := f.allocate("")
		f.allocate("router")
		f.Abandon(context.Background(), client.DefaultPool, "anonymous/unknown")
		f.Abandon(context.Background(), a.Pool, a.Owner)
		f.Abandon(context.Background(), a.Pool, a.Owner)
		synctest.Wait()
		f.Abandon(context.Background(), a.Pool, a.Owner)
		f.wantStored(1)
		f.wantOwners("router")
	})
}

// The last invocation has the container ID that holds the addresses, also after a release that could not be
// written.
func TestReleaseNotWritten(t *testing.T) {
	run(t, "an ADD of another ID was refused", with(ipv4Only, storeReadable), func(f *fixture) {
		f.allocate("router")
		f.addInvocation("router", func(c *call.Invocation) { c.ContainerID, c.AddRefused = "earlier", true; c.Args = "A=b" })
		live := f.get("router").IDInUse()
		f.inject(once("write releasing", writeFailed))
		f.wantError(f.tryRelease("10.0.0.1"), protocol.Failed)
		if got := f.get("router").IDInUse(); got != live {
			f.t.Errorf("the last container ID is %s; want %s", got, live)
		}
	})
}

// discard discards the router, and wants the commands of the leftovers.
func (f *fixture) discard(commands ...string) {
	f.t.Helper()
	_, left, err := f.Discard(context.Background(), "", "router")
	if err != nil || len(left) != len(commands) {
		f.t.Fatalf("got %+v, %v; want the commands %q", left, err, commands)
	}
	for i, want := range commands {
		if left[i].Command != want || left[i].Network != "net" || left[i].Plugin != "host-local" {
			f.t.Errorf("got %+v; want the command %q", left[i], want)
		}
	}
}

func TestDiscard(t *testing.T) {
	const del = "DEL " + routerID
	run(t, "the plugin refuses everything", with(needsPod), func(f *fixture) {
		f.wantError(f.tryAllocate("router"), protocol.Failed, "no pod")
		f.discard(del)
		f.wantNoAttachment()
		f.wantRecords(0)
		if got := f.logged.LastEntry(); got == nil || got.Level != logrus.WarnLevel || got.Data["network"] != "net" || got.Data["plugin"] != "host-local" {
			f.t.Errorf("got the log line %+v; want a warning with network and plugin", got)
		}
		f.restart(namesPod)
		f.wantNoAttachment()
	})
	run(t, "the plugin accepts the DEL", with(ipv4Only), func(f *fixture) {
		f.allocate("router")
		f.discard()
		f.wantGone()
	})
	run(t, "a DEL may act late", with(unknownPlugin), func(f *fixture) {
		f.allocate("router")
		f.inject(always(timeoutLate, "DEL"))
		if _, left, err := f.Discard(context.Background(), "", "router"); err != nil || len(left) != 1 {
			f.t.Fatalf("got %+v, %v; want one leftover", left, err)
		}
		f.wantNoAttachment()
		f.inject(nil)
		f.allocate("router")
		f.wantGeneration("router", 1)
		f.sleep(time.Hour)
		f.wantStoreAgrees()
	})
	run(t, "the record cannot be removed", with(ipv4Only), func(f *fixture) {
		f.allocate("router")
		f.inject(each(map[string]fault{"DEL": refused, "remove": writeFailed}))
		_, left, err := f.Discard(context.Background(), "", "router")
		f.wantError(err, protocol.Failed, "could not be removed")
		if len(left) > 0 || f.get("router").Owner == "" {
			f.t.Errorf("got %+v and the attachment %+v; want it kept", left, f.get("router"))
		}
	})
	run(t, "none", nil, func(f *fixture) {
		for _, pool := range []string{"", "other"} {
			_, _, err := f.Discard(context.Background(), pool, "router")
			f.wantError(err, protocol.NotFound, "router", "no attachment")
		}
	})
}
