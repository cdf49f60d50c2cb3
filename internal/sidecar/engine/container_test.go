package engine

import (
	"context"
	"errors"
	"testing"

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
