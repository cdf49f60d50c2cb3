package bridge

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/delegated-ipam/delegated-ipam/test/bridge/apiserver"
)

// grantedRights returns the permissions in deploy/kubernetes/bridge/rbac.yaml.
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
	f, rights := newFixture(t, false), grantedRights(t)
	f.server.Allow(func(r apiserver.Permission) bool { return rights[r] })
	p := f.serve(t, 4, smallFlags()...)
	f.addPods(t, 5)
	f.agent.Free(f.agent.Uses()...)
	f.eventually(t, "the release of the excess", func() error { return f.atRest(t, 4) })
	// The second of two equal Events is a patch of the first.
	for absence := range 2 {
		f.server.Delete(f.node.Name)
		before := len(f.server.Events())
		f.eventually(t, "an Event", func() error {
			if len(f.server.Events()) == before {
				return errors.New("there is none")
			}
			return nil
		})
		f.server.Create(f.node.Name, apiserver.Object{"ipam": apiserver.Object{}})
		f.eventually(t, "the pool to be published again", func() error { return f.poolHas(t, 4) })
		// The next absence is another condition only then.
		f.eventually(t, "the end of the condition", func() error {
			if n := strings.Count(p.out.String(), `msg="Condition cleared" reason=CiliumNodeMissing`); n != absence+1 {
				return fmt.Errorf("logged %d times", n)
			}
			return nil
		})
	}
	if requested := f.server.Requested(); !maps.Equal(requested, rights) {
		t.Errorf("the bridge uses %v; deploy/kubernetes/bridge/rbac.yaml grants %v", requested, rights)
	}
}
