package bridge

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/delegated-ipam/delegated-ipam/test/bridge/apiserver"
)

// grantedRights is what deploy/kubernetes/bridge/rbac.yaml lets the bridge do.
func grantedRights(t *testing.T) map[apiserver.Permission]bool {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(manifests, "rbac.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	rights := map[apiserver.Permission]bool{}
	for _, document := range bytes.Split(data, []byte("\n---\n")) {
		var role struct {
			Kind  string
			Rules []struct {
				APIGroups, Resources, ResourceNames, NonResourceURLs, Verbs []string
			}
		}
		if err := yaml.Unmarshal(document, &role); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			if len(rule.ResourceNames)+len(rule.NonResourceURLs) > 0 {
				t.Errorf("%s has a rule that this test does not understand: %+v", role.Kind, rule)
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

// TestTheBridgeMayDoWhatItDoesAndNothingElse serves a node under the rules that
// are deployed, with all that the bridge ever does.
func TestTheBridgeMayDoWhatItDoesAndNothingElse(t *testing.T) {
	w, rights := newFixture(t, false), grantedRights(t)
	w.server.Allow(func(r apiserver.Permission) bool { return rights[r] })
	p := startBridge(t, w.server, w.node, smallFlags()...)
	w.agent.Start(t)
	w.eventually(t, "the first publication", func() error { return w.poolHas(t, 4) })
	w.addPods(t, 5)
	w.agent.Free(w.agent.Uses()...)
	w.eventually(t, "the excess to go back", func() error { return w.atRest(t, 4) })
	// The same Event twice is created, and then counted up by a patch.
	for absence := range 2 {
		w.server.Delete(w.node.Name)
		before := len(w.server.Events())
		w.eventually(t, "an Event", func() error {
			if len(w.server.Events()) == before {
				return fmt.Errorf("there is none")
			}
			return nil
		})
		w.server.Create(w.node.Name, apiserver.Object{"ipam": apiserver.Object{}})
		w.eventually(t, "the pool to be published again", func() error { return w.poolHas(t, 4) })
		// Only then is another absence another one.
		w.eventually(t, "the bridge to know that it is over", func() error {
			if n := strings.Count(p.out.String(), "msg=over reason=CiliumNodeMissing"); n != absence+1 {
				return fmt.Errorf("it has said so %d times", n)
			}
			return nil
		})
	}
	if done := w.server.Requested(); !maps.Equal(done, rights) {
		t.Errorf("the bridge does %v; deploy/kubernetes/bridge/rbac.yaml grants %v", done, rights)
	}
}
