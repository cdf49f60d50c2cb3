package bridge

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/delegated-ipam/delegated-ipam/internal/nodeevents"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/bridge/apiserver"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// grantedRights returns the permissions in deploy/kubernetes/base/bridge/rbac.yaml.
func grantedRights(t *testing.T) map[apiserver.Permission]bool {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(manifests, "rbac.yaml"))
	check.Must(t, err)
	rights := map[apiserver.Permission]bool{}
	for _, document := range bytes.Split(data, []byte("\n---\n")) {
		var role struct {
			Kind  string
			Rules []struct {
				APIGroups, Resources, ResourceNames, NonResourceURLs, Verbs []string
			}
		}
		check.Must(t, yaml.Unmarshal(document, &role))
		for _, rule := range role.Rules {
			if len(rule.ResourceNames)+len(rule.NonResourceURLs) > 0 {
				t.Errorf("%s has a rule that this test does not support: %+v", role.Kind, rule)
			}
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						rights[apiserver.Permission{Group: group, Resource: resource, Verb: verb}] = true
					}
				}
			}
		}
	}
	return rights
}

// TestRBAC serves a node under the deployed rules, with every request that the bridge makes: none is
// missing, and none is granted without need.
func TestRBAC(t *testing.T) {
	t.Parallel() // it waits for an Event of a real bridge, which takes conditions.EventDelay
	f, rights := newFixture(t, false), grantedRights(t)
	f.server.Allow(func(r apiserver.Permission) bool { return rights[r] })
	f.server.NoStreams() // otherwise nothing is listed
	f.addNode(1)
	p := f.serve(t, 4, "--min-allocate=4") // with auto it reads the Node, too
	f.addPods(t, 5)
	f.agent.Free(f.agent.Uses()...)
	f.converge(t, 4)
	f.server.Delete(f.node.Name)
	f.waitForCondition(t, p, "CiliumNodeMissing")
	time.Sleep(nodeevents.EventDelay)
	harness.Eventually(t, "the Event of the bridge", func() error {
		for _, e := range f.server.Events() {
			if e.Reason == "CiliumNodeMissing" && e.Kind == "Node" && e.Name == f.node.Name {
				return nil
			}
		}
		return fmt.Errorf("the Events are %v", f.server.Events())
	})
	f.server.Create(f.node.Name, apiserver.Object{"ipam": apiserver.Object{}})
	f.eventually(t, "the pool to be published again", func() error { return f.poolHas(t, 4) })
	f.repeatEvent(t)
	if requested := f.server.Requested(); !maps.Equal(requested, rights) {
		t.Errorf("the bridge uses %v; deploy/kubernetes/base/bridge/rbac.yaml grants %v", requested, rights)
	}
}

// repeatEvent creates two equal Events with the bridge's recorder: the second is a patch of the
// first.
func (f *fixture) repeatEvent(t *testing.T) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", f.server.Kubeconfig(t))
	check.Must(t, err)
	recorder, err := nodeevents.NewRecorder(t.Context(), config, "test", f.node.Name)
	check.Must(t, err)
	node := &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: f.node.Name}
	for range 2 {
		before := len(f.server.Events())
		recorder.Event(node, corev1.EventTypeWarning, "Repeated", "again")
		harness.Eventually(t, "the Event", func() error {
			if now := len(f.server.Events()); now == before {
				return fmt.Errorf("still %d", now)
			}
			return nil
		})
	}
}
