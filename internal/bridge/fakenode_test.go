package bridge

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/ciliumnode"
	"github.com/delegated-ipam/delegated-ipam/internal/bridge/planner"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/crdagent"
)

// patchForbidden is an API server's refusal of a write.
func patchForbidden() error {
	return apierrors.NewForbidden(ciliumnode.Resource().GroupResource(), "worker", errors.New("no patch"))
}

// fakeNode is the CiliumNode at an API server, and the agent that answers marks.
type fakeNode struct {
	// node is nil if there is none; version is the one of its last change.
	node    *ciliumnode.Node
	version int
	// inCache is the object of the watch; nil for the CiliumNode itself. watchDown is a watch that
	// does not work.
	inCache   *ciliumnode.Node
	watchDown bool
	// wake wakes the bridge, nil before it runs.
	wake func()
	// apiErr is the result of every request, writeErr of a write, dryRunErr of a dry run.
	apiErr, writeErr, dryRunErr error
	// beforeGet is a change by another client before the next read of the CiliumNode.
	beforeGet func()
	// conflicts is the number of patches that another client's write precedes.
	conflicts int
	// agentSilent is an agent that does not respond.
	agentSilent bool
	// apiLatency is the duration of a request.
	apiLatency time.Duration
	// gets, patches and dryRuns count the requests.
	gets, patches, dryRuns int
}

func (n *fakeNode) create(uid types.UID) {
	n.node = &ciliumnode.Node{}
	n.node.Metadata.Name, n.node.Metadata.UID = "worker", uid
	n.node.Spec.IPAM.Pool = map[string]planner.Entry{}
	n.node.Status.IPAM.Used = map[string]planner.Entry{}
	n.node.Status.IPAM.ReleaseIPs = map[string]planner.Handshake{}
	n.changed()
}

func (n *fakeNode) changed() {
	n.version++
	if n.node != nil {
		n.node.Metadata.ResourceVersion = strconv.Itoa(n.version)
	}
	n.signal()
}

func (n *fakeNode) signal() {
	if n.wake != nil {
		n.wake()
	}
}

func clone(n *ciliumnode.Node) *ciliumnode.Node {
	out := *n
	out.Spec.IPAM.Pool = maps.Clone(n.Spec.IPAM.Pool)
	out.Status.IPAM.Used = maps.Clone(n.Status.IPAM.Used)
	out.Status.IPAM.ReleaseIPs = maps.Clone(n.Status.IPAM.ReleaseIPs)
	return &out
}

func (f *fixture) cached() (n *ciliumnode.Node, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.watchDown {
		err = cmp.Or(f.apiErr, patchForbidden())
	}
	if f.inCache != nil || f.node == nil {
		return f.inCache, err
	}
	return clone(f.node), err
}

func (f *fixture) resumes() time.Time { return time.Time{} }

func (f *fixture) get(context.Context) (*ciliumnode.Node, error) {
	time.Sleep(f.apiLatency)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gets++
	if f.beforeGet != nil {
		f.beforeGet()
		f.beforeGet = nil
		f.changed()
	}
	if f.apiErr != nil {
		return nil, f.apiErr
	}
	if f.node == nil {
		return nil, apierrors.NewNotFound(ciliumnode.Resource().GroupResource(), "worker")
	}
	return clone(f.node), nil
}

func (f *fixture) checkWriteAccess(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dryRuns++
	return cmp.Or(f.apiErr, f.dryRunErr)
}

func (f *fixture) patch(_ context.Context, p patch) (*ciliumnode.Node, error) {
	time.Sleep(f.apiLatency)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.patches++
	if err := cmp.Or(f.apiErr, f.writeErr); err != nil {
		return nil, err
	}
	if f.conflicts > 0 {
		f.conflicts--
		f.changed()
	}
	if p.version != f.node.Metadata.ResourceVersion {
		return nil, apierrors.NewConflict(ciliumnode.Resource().GroupResource(), "worker", errors.New("modified"))
	}
	for key, value := range p.entries {
		f.write(p.target, key, value)
	}
	f.changed()
	return clone(f.node), nil
}

// write applies one entry of a patch. The agent answers a mark immediately.
func (f *fixture) write(to target, key string, value any) {
	_, used := f.node.Status.IPAM.Used[key]
	_, published := f.node.Spec.IPAM.Pool[key]
	switch v := value.(type) {
	case map[string]any:
		owner, _ := v["owner"].(string)
		if !slices.ContainsFunc(slices.Collect(maps.Values(f.held)), func(held netip.Addr) bool { return held.String() == key }) {
			f.publishedUnheld = append(f.publishedUnheld, key)
		}
		f.node.Spec.IPAM.Pool[key] = planner.Entry{Owner: owner, Resource: v["resource"].(string)}
	case planner.Handshake:
		if !f.agentSilent || v == planner.Released {
			v = crdagent.Answer(v, published, used)
		}
		if f.node.Status.IPAM.ReleaseIPs[key] = v; v == "" {
			delete(f.node.Status.IPAM.ReleaseIPs, key)
		}
	default:
		if to == targetStatus {
			delete(f.node.Status.IPAM.ReleaseIPs, key)
			return
		}
		delete(f.node.Spec.IPAM.Pool, key)
	}
}

// pool returns the published addresses in order, a suspended one with a * appended.
func (f *fixture) pool() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.node == nil {
		return nil
	}
	var out []string
	for key, e := range f.node.Spec.IPAM.Pool {
		if e.Suspended() {
			key += "*"
		}
		out = append(out, key)
	}
	slices.Sort(out)
	return out
}
