package fleet

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// daemonSets is an API server with DaemonSets and pods of one namespace, which are there until they are deleted.
type daemonSets struct {
	mu sync.Mutex
	// sets has the number of nodes of each DaemonSet, pods the state of each pod of NAME-uninstall by node.
	sets map[string]int
	pods map[string]object
	// afterDelete is called when a DaemonSet was deleted.
	afterDelete               func(name string)
	deleted                   []string
	ciliumNodes, podAddresses []object
	// down is the number of further requests that fail with 503.
	down int
}

type object = map[string]any

func (d *daemonSets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	const sets = "/apis/apps/v1/namespaces/cni/daemonsets/"
	w.Header().Set("Content-Type", "application/json")
	send := func(body object) { _ = json.NewEncoder(w).Encode(body) }
	list := func(kind, version string, items []object) {
		send(object{"kind": kind, "apiVersion": version, "metadata": object{}, "items": items})
	}
	if d.down > 0 {
		d.down--
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	name, isSet := strings.CutPrefix(r.URL.Path, sets)
	nodes, exists := d.sets[name]
	switch {
	case isSet && exists && r.Method == http.MethodDelete:
		delete(d.sets, name)
		d.deleted = append(d.deleted, name)
		d.afterDelete(name)
		send(object{"kind": "Status", "apiVersion": "v1", "status": "Success"})
	case isSet && exists:
		send(object{
			"kind": "DaemonSet", "apiVersion": "apps/v1", "metadata": object{"name": name, "generation": 1},
			"spec":   object{"selector": object{"matchLabels": object{"app": "u"}}},
			"status": object{"desiredNumberScheduled": nodes, "observedGeneration": 1},
		})
	case r.URL.Path == "/api/v1/namespaces/cni/pods" && r.URL.Query().Get("labelSelector") == "app=u":
		var items []object
		for node, status := range d.pods {
			items = append(items, object{"metadata": object{"name": node}, "spec": object{"nodeName": node}, "status": status})
		}
		list("PodList", "v1", items)
	case r.URL.Path == "/api/v1/pods":
		list("PodList", "v1", d.podAddresses)
	case r.URL.Path == "/apis/cilium.io/v2/ciliumnodes" && d.ciliumNodes != nil:
		list("CiliumNodeList", "cilium.io/v2", d.ciliumNodes)
	default:
		w.WriteHeader(http.StatusNotFound)
		send(object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404, "message": "not found"})
	}
}

func (d *daemonSets) start(t *testing.T) (Uninstall, *strings.Builder) {
	t.Helper()
	if d.afterDelete == nil {
		d.afterDelete = func(string) {}
	}
	server := httptest.NewServer(d)
	t.Cleanup(server.Close)
	c, err := New(&rest.Config{Host: server.URL, QPS: -1})
	check.Must(t, err)
	var progress strings.Builder
	return Uninstall{Cluster: c, Namespace: "cni", Name: "ipam", Interval: time.Millisecond, Progress: &progress}, &progress
}

func TestUninstallPrepare(t *testing.T) {
	node := object{"metadata": object{"name": "a"}, "spec": object{"ipam": object{"pool": object{
		"10.0.0.1": object{"resource": "delegated-ipam/ciliumnode-0"}, "10.0.0.2": object{"resource": "eni-1"},
	}}}}
	pod := func(ip, phase string) []object {
		return []object{{
			"metadata": object{"name": "web", "namespace": "shop"}, "spec": object{"nodeName": "a"},
			"status": object{"phase": phase, "startTime": "2026-11-22T15:04:05Z", "podIPs": []any{object{"ip": ip}}},
		}}
	}
	bridge := object{
		"metadata": object{"name": "bridge", "namespace": "cni", "labels": object{"app.kubernetes.io/name": "delegated-ipam-bridge"}},
		"spec":     object{"nodeName": "a", "hostNetwork": true}, "status": object{"phase": "Running"},
	}
	for name, c := range map[string]struct {
		nodes, pods []object
		err         string
	}{
		"a pod that starts":        {[]object{node}, pod("10.0.0.1", "Pending"), "10.0.0.1 of shop/web on a"},
		"no CiliumNode, a bridge":  {[]object{}, append(pod("10.0.0.1", "Running"), bridge), "10.0.0.1 of shop/web on a, which has a bridge and no CiliumNode"},
		"no CiliumNode, no bridge": {[]object{}, pod("10.0.0.1", "Running"), ""},
		"no CiliumNodes":           {nil, pod("10.0.0.1", "Running"), ""},
		"no pods":                  {[]object{node}, nil, ""},
		"a pod with an address":    {[]object{node}, pod("10.0.0.1", "Running"), "10.0.0.1 of shop/web on a"},
		"a pod that has ended":     {[]object{node}, pod("10.0.0.1", "Succeeded"), ""},
		"an address of another":    {[]object{node}, pod("10.0.0.2", "Running"), ""},
		"a pod of another network": {[]object{node}, pod("10.1.0.1", "Running"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := &daemonSets{sets: map[string]int{"ipam": 1, "ipam-bridge": 1, "ipam-network": 1}, ciliumNodes: c.nodes, podAddresses: c.pods}
			u, _ := d.start(t)
			err := u.Prepare(t.Context())
			want := []string{"ipam-bridge", "ipam-network"}
			if c.err != "" {
				want = nil
			}
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("error %v; want %q", err, c.err)
			}
			if !slices.Equal(d.deleted, want) {
				t.Errorf("deleted %v; want %v", d.deleted, want)
			}
			if err := u.Prepare(t.Context()); c.err == "" && err != nil {
				t.Errorf("repeated: %v", err)
			}
		})
	}
}

// endAfterLine calls end after a line.
type endAfterLine struct {
	io.Writer
	end func()
}

func (w endAfterLine) Write(line []byte) (int, error) {
	defer w.end()
	return w.Writer.Write(line)
}

// The daemon stays until all nodes have released their addresses.
func TestUninstallFinish(t *testing.T) {
	released := object{"initContainerStatuses": []any{object{"name": ReleaseContainer, "state": object{"terminated": object{"exitCode": 0}}}}}
	failed := object{"initContainerStatuses": []any{object{"name": ReleaseContainer, "state": object{"terminated": object{"exitCode": 1}}}}}
	ready := object{"conditions": []any{object{"type": "Ready", "status": "True"}}}

	d := &daemonSets{sets: map[string]int{"ipam": 2, "ipam-uninstall": 2}, pods: map[string]object{"a": released, "b": failed}}
	u, progress := d.start(t)
	// A request whose client has gone may still be served.
	change := func(do func()) {
		d.mu.Lock()
		defer d.mu.Unlock()
		do()
	}
	waits, cancel := context.WithCancel(t.Context())
	u.Progress = endAfterLine{progress, cancel}
	if err := u.Finish(waits); err == nil || len(d.deleted) > 0 {
		t.Errorf("deleted %v, %v; want nothing while b has addresses", d.deleted, err)
	}
	if got := progress.String(); got != "1 of 2 nodes: release its addresses; not yet b\n" {
		t.Errorf("printed %q", got)
	}

	u.Progress = progress
	change(func() { d.pods["b"] = released })
	change(func() { d.afterDelete = func(string) { d.pods = map[string]object{"a": ready, "b": ready} } })
	if err := u.Finish(t.Context()); err != nil || !slices.Equal(d.deleted, []string{"ipam"}) {
		t.Errorf("deleted %v, %v; want the daemon", d.deleted, err)
	}

	change(func() {
		d.sets["ipam-uninstall"], d.pods, d.deleted = 3, map[string]object{"a": released, "b": released, "c": released}, nil
	})
	u.KeepDaemon = true
	if err := u.Finish(t.Context()); err != nil || len(d.deleted) > 0 {
		t.Errorf("with the daemon in Cilium's pod: deleted %v, %v", d.deleted, err)
	}
	change(func() { delete(d.pods, "c") }) // not yet created
	again, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := u.Finish(again); err == nil {
		t.Error("finished while a node has no pod")
	}
	change(func() { delete(d.sets, "ipam-uninstall") })
	if err := u.Finish(t.Context()); err == nil || !strings.Contains(err.Error(), "ipam-uninstall") {
		t.Errorf("without the DaemonSet: %v", err)
	}
}

// Helm runs each step once.
func TestUninstallRepeats(t *testing.T) {
	done := object{"conditions": []any{object{"type": "Ready", "status": "True"}}}
	for name, step := range map[string]func(Uninstall, context.Context) error{
		"remove": func(u Uninstall, ctx context.Context) error { return u.remove(ctx, "ipam") }, "finish": Uninstall.Finish,
	} {
		t.Run(name, func(t *testing.T) {
			d := &daemonSets{sets: map[string]int{"ipam": 1, "ipam-uninstall": 1}, pods: map[string]object{"a": done}, down: 3}
			u, progress := d.start(t)
			if err := step(u, t.Context()); err != nil || !slices.Equal(d.deleted, []string{"ipam"}) {
				t.Errorf("deleted %v, %v; want the daemon", d.deleted, err)
			}
			if got := progress.String(); strings.Count(got, "the server is currently unable") != 1 {
				t.Errorf("printed %q; want the failure once", got)
			}
		})
	}
}
