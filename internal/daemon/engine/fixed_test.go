package engine

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// podContainer returns a container of a pod.
func podContainer(id, pod string) call.Container {
	return call.Container{Attachment: call.Attachment{ContainerID: id, IfName: "eth0"}, Args: "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=" + pod}
}

// add adds a container of a pod and returns its IPv4 address.
func (f *fixture) add(id, pod string) string {
	f.t.Helper()
	a, err := f.AddContainer(context.Background(), "net", podContainer(id, pod))
	if err != nil {
		f.t.Fatal(err)
	}
	ip, _ := a.Address(attachment.IPv4)
	return ip.Addr().String()
}

func (f *fixture) del(id, pod string) {
	f.t.Helper()
	if _, err := f.DelContainer(context.Background(), "net", podContainer(id, pod)); err != nil {
		f.t.Fatal(err)
	}
}

func TestFixedAddress(t *testing.T) {
	for name, tt := range map[string]struct {
		setups []setup
		pod    string
		// between happens after the DEL of the first container.
		between func(f *fixture)
		same    bool
		// kept: the addresses stay in cooldown.
		kept bool
	}{
		"within the delay":     {pod: "web-0", same: true},
		"beside others":        {pod: "web-0", same: true, between: func(f *fixture) { f.add("other", "db-0"); f.add("deployed", "web-7d4b9-x2x4z") }},
		"after a repeated DEL": {pod: "web-0", same: true, between: func(f *fixture) { f.del("one", "web-0") }},
		"after a restart":      {pod: "web-0", same: true, between: func(f *fixture) { f.restart(storeReadable, releaseDelay(time.Hour)) }},
		"after the delay":      {pod: "web-0", between: func(f *fixture) { f.sleep(2 * time.Hour); f.add("other", "db-0") }},
		"while its start works": {pod: "web-0", same: true, between: func(f *fixture) {
			op := f.lock(attachment.ContainerOwner("one", "eth0"))
			time.AfterFunc(time.Second, op.end)
		}},
		"any name":                  {pod: "web", same: true, between: func(f *fixture) { f.add("other", "web-0") }},
		"no name":                   {kept: true, between: func(f *fixture) { f.add("other", "") }},
		"no requests by the plugin": {pod: "web-0", kept: true, setups: []setup{checkedPlugin}, between: func(f *fixture) { f.add("other", "db-0") }},
		"released by an operator": {pod: "web-0", between: func(f *fixture) {
			a := f.get(attachment.ContainerOwner("one", "eth0"))
			f.must(ReleaseRequest{IP: a.Addrs()[0], SkipDelay: true})
			f.add("other", "db-0")
		}},
	} {
		run(t, name, append([]setup{storeReadable, releaseDelay(time.Hour)}, tt.setups...), func(f *fixture) {
			first := f.add("one", tt.pod)
			f.del("one", tt.pod)
			if tt.between != nil {
				tt.between(f)
			}
			if second := f.add("two", tt.pod); (second == first) != tt.same {
				f.t.Errorf("the second container got %s, and the first one %s; want the same: %t", second, first, tt.same)
			}
			f.del("one", tt.pod) // late
			a := f.get(attachment.ContainerOwner("two", "eth0"))
			if a.State != attachment.Held || !slices.Equal(f.node.store["two"], a.Addrs()) {
				f.t.Errorf("after a late DEL the attachment is %+v, and the plugin has %v", a, f.node.store)
			}
			if _, ok := f.node.store["one"]; ok != tt.kept {
				f.t.Errorf("the plugin has %v; the addresses of the first container: %t", f.node.store, tt.kept)
			}
		})
	}
	delay := releaseDelay(time.Hour)
	// The container would get the plugin's whole result, so it gets others if an excluded address comes with the
	// fixed one.
	run(t, "with an excluded address", with(ipv4Only, storeReadable, delay, pluginContinues), func(f *fixture) {
		f.add("one", "web-0")
		f.del("one", "web-0")
		f.restart(delay, exclude("fd00::2"), func(n *fakeNode, _ *Options) { n.ipv6 = true })
		f.add("two", "web-0")
		if got := f.node.store["two"]; len(got) != 2 || slices.Contains(got, addr("fd00::2")) {
			f.t.Errorf("the second container has %v; want two addresses without the excluded fd00::2", got)
		}
		f.wantStoreAgrees()
	})
	run(t, "in use", with(storeReadable, delay), func(f *fixture) { // it is taken over from a deleted container only
		if first, second := f.add("one", "web-0"), f.add("two", "web-0"); first == second {
			f.t.Errorf("two containers got %s", first)
		}
	})
	// A reboot ends each container, and begins the delay, once.
	run(t, "after a reboot", with(storeReadable, delay), func(f *fixture) {
		first, expired := f.add("one", "web-0"), f.add("expired", "web-1")
		f.restart(delay, rebooted)
		if second := f.add("two", "web-0"); second != first {
			f.t.Errorf("got %s; want %s", second, first)
		}
		time.Sleep(40 * time.Minute)
		f.restart(delay, rebooted)
		f.sleep(40 * time.Minute)
		if a := f.get(attachment.ContainerOwner("expired", "eth0")); a.Owner != "" {
			f.t.Errorf("%s is still kept: %+v", expired, a)
		}
	})
}
