package engine

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

func TestRelease(t *testing.T) {
	run(t, "claim by claim", nil, func(f *fixture) {
		f.given("router")
		f.release("10.0.0.1")
		f.wantSteps("write held")
		f.wantError(f.tryRelease("10.0.0.1"), attachment.NotFound)
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
		f.wantError(<-released, attachment.NotFound)
		f.wantHeld("router", "10.0.0.2")
	})
	run(t, "failed DEL is retried", with(ipv4Only), func(f *fixture) {
		f.allocate("router")
		f.inject(always(notStarted, "DEL"))
		f.wantError(f.tryRelease("10.0.0.1"), attachment.Failed, "retried", "router")
		time.Sleep(30 * time.Minute)
		f.wantStored(1)
		if state := f.get("router").State; state != attachment.Releasing {
			f.t.Fatalf("state %q; want releasing", state)
		}
		f.inject(nil)
		f.sleep(10 * time.Minute)
		f.wantNone()
	})
	run(t, "repeated release retries immediately", with(ipv4Only), func(f *fixture) {
		f.allocate("router")
		f.inject(once("DEL", notStarted))
		f.wantError(f.tryRelease("10.0.0.1"), attachment.Failed)
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
		f.wantError(f.tryRelease("10.0.0.1"), attachment.Failed)
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
		f.wantError(f.tryRelease("10.0.0.1"), attachment.Failed)
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

// The result of a release, of which the log has the addresses, has all that were freed.
func TestReleaseResult(t *testing.T) {
	run(t, "released", nil, func(f *fixture) {
		f.allocate("router")
		f.release("10.0.0.1")
		if a := f.must(ReleaseRequest{IP: addr("fd00::1")}); !slices.Equal(a.Addrs(), []netip.Addr{addr("10.0.0.1"), addr("fd00::1")}) || a.Owner != "router" {
			f.t.Errorf("got %s with %v; want both addresses of router", a.Owner, a.Addrs())
		}
		f.wantNone()
	})
	run(t, "container", nil, func(f *fixture) {
		f.add("one", "web-0")
		a, err := f.DelContainer(context.Background(), "net", podContainer("one", "web-0"))
		if err != nil || len(a.Addrs()) != 2 {
			f.t.Errorf("got %v, %v; want both addresses", a.Addrs(), err)
		}
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
		f.wantError(f.tryRelease("10.0.0.1"), attachment.NotFound, "not allocated")
		f.wantSteps("")
		f.releaseNow("10.0.0.1")
		f.wantSteps("write releasing, DEL, remove")
		f.wantError(f.try(ReleaseRequest{IP: addr("10.0.0.1"), SkipDelay: true}), attachment.NotFound)
	})
}

// The attachment of a generated owner is released if its client leaves before the response.
func TestReturn(t *testing.T) {
	for name, injected := range map[string]func(string) fault{
		"failed DEL":   once("DEL", refused),
		"failed write": once("write releasing", writeFailed),
	} {
		run(t, name+" is retried", with(releaseDelay(time.Hour), gatedAdd), func(f *fixture) {
			_, leave := f.startAllocate(AllocateRequest{})
			leave()
			f.inject(injected)
			f.openGate()
			f.sleep(time.Minute)
			f.wantGone()
			for _, e := range f.takeEvents() {
				if strings.HasPrefix(e, string(attachment.Retire)) {
					f.t.Errorf("event %q without --retire-owners", e)
				}
			}
		})
	}
}

// The last invocation has the container ID that holds the addresses, also after a release that could not be
// written.
func TestReleaseNotWritten(t *testing.T) {
	run(t, "an ADD of another ID was refused", with(ipv4Only, storeReadable), func(f *fixture) {
		f.allocate("router")
		f.addInvocation("router", func(c *call.Invocation) { c.ContainerID, c.AddRefused = "earlier", true; c.Args = "A=b" })
		live := f.get("router").IDInUse()
		f.inject(once("write releasing", writeFailed))
		f.wantError(f.tryRelease("10.0.0.1"), attachment.Failed)
		if got := f.get("router").IDInUse(); got != live {
			f.t.Errorf("the last container ID is %s; want %s", got, live)
		}
	})
}
