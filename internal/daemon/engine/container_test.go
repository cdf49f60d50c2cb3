package engine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

// A repeated ADD changes nothing while the plugin holds the addresses, and while it is not known whether
// it does.
func TestRepeatedContainerAdd(t *testing.T) {
	run(t, "held", with(checkedPlugin), func(f *fixture) {
		first := f.add("one", "web-0")
		f.steps()
		if again := f.add("one", "web-0"); again != first {
			f.t.Errorf("got %s; want %s", again, first)
		}
		if pod := f.get(attachment.ContainerOwner("one", "eth0")).Pod(); pod != "shop/web-0" {
			f.t.Errorf("the pod is %q", pod)
		}
		f.wantSteps("CHECK")
	})
	run(t, "outage", with(checkedPlugin), func(f *fixture) {
		f.add("one", "web-0")
		f.steps()
		f.inject(always(outage, "CHECK"))
		_, err := f.AddContainer(context.Background(), "net", podContainer("one", "web-0"))
		f.wantError(err, attachment.Failed, "could not verify")
		f.wantSteps("CHECK")
		if a := f.get(attachment.ContainerOwner("one", "eth0")); a.State != attachment.Held {
			f.t.Errorf("the attachment is %s; want held", a.State)
		}
		f.wantStoreAgrees()
	})
}

// addIn adds a container interface with a network namespace and CNI_ARGS.
func (f *fixture) addIn(netns, args string) error {
	c := podContainer("one", "web-0")
	c.NetNS, c.Args = netns, args
	_, err := f.AddContainer(context.Background(), "net", c)
	return err
}

// last returns the invocation that the journal has for the container interface "one", and whether it is the
// same after a restart.
func (f *fixture) last() call.Invocation {
	f.t.Helper()
	for _, r := range f.node.records {
		inv := f.get(attachment.ContainerOwner("one", "eth0")).Invocations
		if disk := r.Invocations[len(r.Invocations)-1]; !disk.Equal(inv[len(inv)-1]) {
			f.t.Errorf("the journal has %+v, and memory %+v", disk, inv[len(inv)-1])
		}
		return r.Invocations[len(r.Invocations)-1]
	}
	f.t.Fatal("the journal has no record")
	return call.Invocation{}
}

// A repeated ADD may have another network namespace, as after a restore of Nomad. CHECK and DEL use it, and
// nothing counts by the earlier one any more.
func TestRepeatedContainerAddElsewhere(t *testing.T) {
	const args = "IgnoreUnknown=1;K8S_POD_NAME=web-0"
	owner := attachment.ContainerOwner("one", "eth0")
	for name, setups := range map[string][]setup{"checked": with(checkedPlugin), "lookup": with(storeReadable)} {
		run(t, name, setups, func(f *fixture) {
			must := func(err error) {
				f.t.Helper()
				if err != nil {
					f.t.Fatal(err)
				}
			}
			must(f.addIn("/var/run/netns/a", args))
			first := f.get(owner)
			f.sleep(time.Minute)
			before := time.Now()
			f.inject(once("write held", writeFailed))
			f.wantError(f.addIn("/var/run/netns/b", args), attachment.Failed, "journal")
			f.inject(nil)
			if a := f.get(owner); a.Invocations[0].NetNS != "/var/run/netns/a" {
				f.t.Errorf("after a failed write memory has %+v", a.Invocations)
			}
			must(f.addIn("/var/run/netns/b", args))
			if inv := f.last(); inv.NetNS != "/var/run/netns/b" || inv.PrevResult == nil {
				f.t.Errorf("recorded %+v; want the new namespace, and the result", inv)
			}
			if a := f.get(owner); len(a.Invocations) != 1 || !slices.Equal(a.Addrs(), first.Addrs()) {
				f.t.Errorf("the record is %+v; want one invocation and %v", a, first.Addrs())
			}
			// The container that was seen to have ended before is not this one.
			released, err := f.ReleaseContainer(context.Background(), attachment.Key{Pool: client.DefaultPool, Owner: owner}, func(a Attachment) bool { return a.Created.Before(before) })
			if err != nil || released {
				f.t.Errorf("released %t, %v", released, err)
			}
			f.steps()
			must(f.addIn("/var/run/netns/b", args))
			if steps := f.steps(); strings.Contains(steps, "write") {
				f.t.Errorf("the same ADD had the steps %s", steps)
			}
			var called []string
			f.onCall(func(verb string, c call.Call) { called = append(called, verb+" "+c.NetNS) })
			_, err = f.CheckContainer(context.Background(), "net", podContainer("one", "web-0"))
			must(err)
			f.del("one", "web-0")
			if want := []string{"CHECK /var/run/netns/b", "DEL /var/run/netns/b"}; !slices.Equal(called, want) {
				f.t.Errorf("called %q; want %q", called, want)
			}
			f.wantNone()
		})
	}
	// The plugin may know what it has allocated by the arguments of its ADD.
	run(t, "other arguments", with(checkedPlugin), func(f *fixture) {
		for _, pod := range []string{"web-0", "web-1", "web-2"} {
			if err := f.addIn("/var/run/netns/a", "K8S_POD_NAME="+pod); err != nil {
				f.t.Fatal(err)
			}
		}
		var args []string
		for _, inv := range f.get(owner).Invocations {
			args = append(args, inv.Args)
		}
		if want := []string{"K8S_POD_NAME=web-2", "K8S_POD_NAME=web-0"}; !slices.Equal(args, want) {
			f.t.Errorf("recorded %q; want those of the ADD that the plugin ran, and the last ones: %q", args, want)
		}
		f.del("one", "web-2")
		f.wantNone()
	})
}

// The ADD of a container is refused without a record if the plugin refuses the configuration. Its DEL and
// CHECK are run, and a held container is answered.
func TestContainerConfigRefused(t *testing.T) {
	refuse := func(n *fakeNode) { n.configErr = errors.New("gateway outside of the subnet") }
	run(t, "new", with(checkedPlugin), func(f *fixture) {
		f.node.with(refuse)
		_, err := f.AddContainer(context.Background(), "net", podContainer("one", "web-0"))
		f.wantError(err, attachment.Failed, "gateway outside of the subnet")
		f.wantSteps("")
		f.wantNone()
		f.del("one", "web-0")
		f.wantSteps("write releasing, DEL, remove")
	})
	run(t, "held", with(checkedPlugin), func(f *fixture) {
		first := f.add("one", "web-0")
		f.node.with(refuse)
		if again := f.add("one", "web-0"); again != first {
			f.t.Errorf("got %s; want %s", again, first)
		}
		if _, err := f.CheckContainer(context.Background(), "net", podContainer("one", "web-0")); err != nil {
			f.t.Error(err)
		}
		f.del("one", "web-0")
		f.wantNone()
	})
}

// A DEL that was received is carried out, although its client has left and the engine stops.
func TestReceivedDel(t *testing.T) {
	receive := func(f *fixture) { // during the ADD
		for _, request := range []func(context.Context, string, call.Container) (Attachment, error){f.AddContainer, f.DelContainer} {
			ctx, leave := context.WithCancel(context.Background())
			go request(ctx, "net", podContainer("one", "web-0")) //nolint:errcheck // its client leaves
			synctest.Wait()
			leave()
			synctest.Wait()
		}
	}
	run(t, "client left", with(gatedAdd), func(f *fixture) {
		receive(f)
		f.openGate()
		f.sleep(time.Second)
		f.wantNone()
	})
	run(t, "stopping", with(gatedAdd), func(f *fixture) {
		receive(f)
		stopped := make(chan error)
		go func() { stopped <- f.Stop(context.Background()) }()
		synctest.Wait()
		f.openGate()
		if err := <-stopped; err != nil {
			f.t.Error(err)
		}
		for id, r := range f.node.records {
			if r.State != attachment.Releasing {
				f.t.Errorf("after the stop the record %s is %s; want releasing", id, r.State)
			}
		}
		f.restart()
		f.sleep(time.Second)
		f.wantNone()
	})
	run(t, "failed write", nil, func(f *fixture) {
		f.add("one", "web-0")
		f.inject(once("write releasing", writeFailed))
		_, err := f.DelContainer(context.Background(), "net", podContainer("one", "web-0"))
		f.wantError(err, attachment.Failed)
		f.sleep(10 * time.Second)
		f.wantNone()
	})
}

// A DEL without a record fails while its pool or its plugin is unknown: nothing was released.
func TestContainerDelWithoutPlugin(t *testing.T) {
	for name, fail := range map[string]func(*fakeNode){
		"no configuration": func(n *fakeNode) { n.networkErr = errors.New("no configuration") },
		"no plugin":        func(n *fakeNode) { n.pluginErr = errors.New("no plugin") },
	} {
		run(t, name, nil, func(f *fixture) {
			f.node.with(fail)
			_, err := f.DelContainer(context.Background(), "net", podContainer("one", "web-0"))
			f.wantError(err, attachment.Failed, name)
			f.wantSteps("")
		})
	}
}

// After a rollback a DEL of a network that is configured is run, also without a record: the plugin may have
// what was added without the daemon. ADD and CHECK are refused.
func TestContainerDelAfterRollback(t *testing.T) {
	run(t, "", with(checkedPlugin), func(f *fixture) {
		f.add("two", "web-1")
		f.setStored("one", "10.0.0.9")
		f.node.with(func(n *fakeNode) { n.bare = true })
		for _, request := range []func(context.Context, string, call.Container) (Attachment, error){f.AddContainer, f.CheckContainer} {
			_, err := request(context.Background(), "net", podContainer("one", "web-0"))
			f.wantError(err, attachment.NotFound, "not served")
		}
		f.del("one", "web-0")
		f.del("two", "web-1")
		f.wantGone()
		_, err := f.DelContainer(context.Background(), "another", podContainer("one", "web-0"))
		f.wantError(err, attachment.NotFound, "not served")
	})
}

// A container that has ended is released unless it was added or used since that was found out.
func TestReleaseContainer(t *testing.T) {
	k := attachment.Key{Pool: client.DefaultPool, Owner: attachment.ContainerOwner("one", "eth0")}
	run(t, "the same ADD again", with(checkedPlugin), func(f *fixture) {
		f.add("one", "web")
		f.sleep(time.Minute)
		began := time.Now()
		f.sleep(time.Minute)
		f.add("one", "web")
		released, err := f.ReleaseContainer(context.Background(), k, func(a Attachment) bool { return a.LastUsed.Before(began) })
		if err != nil || released || f.get(k.Owner).State != attachment.Held {
			f.t.Errorf("released %t, %v; the attachment is %s", released, err, f.get(k.Owner).State)
		}
		f.sleep(time.Minute)
		released, err = f.ReleaseContainer(context.Background(), k, func(Attachment) bool { return true })
		if err != nil || !released {
			f.t.Errorf("released %t, %v", released, err)
		}
		f.wantNone()
	})
	// Its DEL may still act, and a tombstone names no interface.
	run(t, "a tombstone", with(checkedPlugin), func(f *fixture) {
		f.add("one", "web")
		f.inject(once("DEL", timeoutLate))
		_, err := f.DelContainer(context.Background(), "net", podContainer("one", "web"))
		f.wantError(err, attachment.Failed)
		f.inject(nil)
		f.sleep(10 * time.Second)
		if r, _ := f.Record(k.Pool, k.Owner); r.State != attachment.Tombstone {
			f.t.Errorf("the record is %s", r.State)
		}
		f.steps()
		released, err := f.ReleaseContainer(context.Background(), k, func(Attachment) bool { return true })
		if steps := f.steps(); err != nil || released || steps != "" {
			f.t.Errorf("released %t, %v, with the steps %s", released, err, steps)
		}
		f.sleep(time.Hour) // until it acts
	})
}

// After a rollback a DEL that was left is carried out for a pod's sandbox, and for a record that is older. Otherwise
// the plugin itself may have added the ID again.
func TestDelLeft(t *testing.T) {
	ctr := podContainer("one", "web")
	sandbox := ctr
	sandbox.Args = "K8S_POD_INFRA_CONTAINER_ID=one"
	for name, c := range map[string]struct {
		add       bool
		bare      bool
		container call.Container
		left      time.Duration // after the ADD
		done      bool
		steps     string
	}{
		"served":                             {false, false, ctr, time.Minute, true, "write releasing, DEL, remove"},
		"rolled back, with a record":         {true, true, ctr, time.Minute, true, "write releasing, DEL, remove"},
		"rolled back, with a later record":   {true, true, ctr, -time.Minute, false, ""},
		"rolled back, unknown":               {false, true, ctr, time.Minute, false, ""},
		"rolled back, an unknown sandbox":    {false, true, sandbox, time.Minute, true, "write releasing, DEL, remove"},
		"rolled back, a sandbox, clock back": {true, true, sandbox, -time.Minute, true, "write releasing, DEL, remove"},
	} {
		run(t, name, with(checkedPlugin), func(f *fixture) {
			if c.add {
				f.add("one", "web")
			}
			at := time.Now().Add(c.left)
			f.sleep(time.Hour)
			f.node.with(func(n *fakeNode) { n.bare = c.bare })
			f.steps()
			done, err := f.DelLeft(context.Background(), "net", c.container, at)
			if err != nil || done != c.done {
				f.t.Errorf("got %t, %v; want %t", done, err, c.done)
			}
			f.wantSteps(c.steps)
		})
	}
	run(t, "not configured", with(checkedPlugin), func(f *fixture) {
		_, err := f.DelLeft(context.Background(), "gone", ctr, time.Now())
		f.wantError(err, attachment.NotFound, `network "gone" is not served`)
	})
}

// An ADD gets no address of another network, which its pool has now.
func TestContainerOfRenamedNetwork(t *testing.T) {
	run(t, "", with(checkedPlugin), func(f *fixture) {
		f.add("one", "web")
		f.node.with(func(n *fakeNode) { n.networks[client.DefaultPool] = "other"; clear(n.store) })
		f.sleep(time.Minute)
		_, err := f.AddContainer(context.Background(), "net", podContainer("one", "web"))
		f.wantError(err, attachment.Failed, `is of network "net"`, `has network "other" now`)
		if a := f.get(attachment.ContainerOwner("one", "eth0")); a.Network != "net" {
			f.t.Errorf("the record is of network %q", a.Network)
		}
	})
}

// A runtime's list of valid attachments lacks a container whose ADD is in progress.
func TestGCBesideADD(t *testing.T) {
	run(t, "the ADD succeeds", with(gatedAdd), func(f *fixture) {
		done := make(chan error, 1)
		go func() {
			_, err := f.AddContainer(context.Background(), "net", podContainer("one", "web-0"))
			done <- err
		}()
		synctest.Wait()
		time.Sleep(time.Second)
		gc := make(chan error, 1)
		go func() { gc <- f.GC(context.Background(), "net", nil) }()
		synctest.Wait()
		time.Sleep(time.Second)
		close(f.node.addGate)
		if err := errors.Join(<-done, <-gc); err != nil {
			f.t.Fatal(err)
		}
		f.wantHeld(attachment.ContainerOwner("one", "eth0"), "10.0.0.1")
		time.Sleep(time.Second)
		if err := f.GC(context.Background(), "net", nil); err != nil {
			f.t.Fatal(err)
		}
		f.wantNone()
	})
}

// To some plugins the interfaces of a container, or the containers of a pod, are one.
func TestKeyedBy(t *testing.T) {
	keyedBy := func(k profile.KeyedBy) setup {
		return changedProfile(func(p *profile.Profile) {
			p.KeyedBy, p.RepeatedAdd, p.VerifyBy = k, profile.RepeatedAddSameAnswer, profile.VerifyNothing
		})
	}
	second := podContainer("one", "web-0")
	second.IfName = "net1"
	run(t, "two interfaces of a container", with(keyedBy(profile.KeyedByContainer)), func(f *fixture) {
		first := f.add("one", "web-0")
		_, err := f.AddContainer(context.Background(), "net", second)
		f.wantError(err, attachment.Failed, "by the container ID alone", "cni/one/eth0")
		f.wantHeld(attachment.ContainerOwner("one", "eth0"), first)
		f.wantStoreAgrees()
		f.wantRecords(1)
		f.del("one", "web-0")
		if _, err := f.AddContainer(context.Background(), "net", second); err != nil {
			f.t.Errorf("after the DEL of the first interface: %v", err)
		}
	})
	run(t, "a second sandbox of a pod", with(keyedBy(profile.KeyedByPod)), func(f *fixture) {
		first := f.add("one", "web-0")
		f.onCall(func(verb string, c call.Call) { // as whereabouts, whose ADD replaces the container ID of the pod
			for id, ips := range f.node.store {
				if verb == "ADD" {
					delete(f.node.store, id)
					f.node.store[c.ContainerID] = ips
				}
			}
		})
		_, err := f.AddContainer(context.Background(), "net", podContainer("two", "web-0"))
		f.wantError(err, attachment.Failed, "another container of the pod has", "nothing was released")
		f.wantStored(1)
		f.wantHeld(attachment.ContainerOwner("one", "eth0"), first)
		f.wantRecords(1)
		f.del("two", "web-0") // a runtime calls DEL after its failed ADD
		f.wantStored(1)
		f.del("one", "web-0")
		f.wantStored(0)
		if again := f.add("two", "web-0"); again != first {
			f.t.Errorf("the next sandbox got %s; want %s", again, first)
		}
	})
}
