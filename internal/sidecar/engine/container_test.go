package engine

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/engine/protocol"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
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
		f.wantSteps("CHECK")
	})
	run(t, "outage", with(checkedPlugin), func(f *fixture) {
		f.add("one", "web-0")
		f.steps()
		f.inject(always(outage, "CHECK"))
		_, err := f.AddContainer(context.Background(), "net", podContainer("one", "web-0"))
		f.wantError(err, protocol.Failed, "could not verify")
		f.wantSteps("CHECK")
		if a := f.get(protocol.ContainerOwner("one", "eth0")); a.State != record.Held {
			f.t.Errorf("the attachment is %s; want held", a.State)
		}
		f.wantStoreAgrees()
	})
}

// A DEL that was received is carried out, although its client has left and the engine stops.
func TestReceivedDel(t *testing.T) {
	receive := func(f *fixture) { // during the ADD
		for _, request := range []func(context.Context, string, call.Container) (Attachment, error){f.AddContainer, f.DelContainer} {
			ctx, leave := context.WithCancel(context.Background())
			go request(ctx, "net", podContainer("one", "web-0")) //nolint:errcheck // nobody reads it
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
			if r.State != record.Releasing {
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
		f.wantError(err, protocol.Failed)
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
			f.wantError(err, protocol.Failed, name)
			f.wantSteps("")
		})
	}
}
