package benchbridge

import (
	"context"
	"fmt"
	"io"
	"iter"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/engine"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/httpapi"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/unixsock"
	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/cluster"
)

// maxCalls is how many calls of the plugin run at the same time: the daemon's default of
// --max-plugin-processes on two processors.
const maxCalls = 4

// plugin imitates the plugin and the daemon's engine: an IPv4 range in memory. The HTTP API in front
// of it is the daemon's.
type plugin struct {
	httpapi.Engine // the methods that no bridge calls

	node, store string
	first       netip.Addr
	calls       chan struct{}

	mu    sync.Mutex
	held  map[string]engine.Attachment
	taken map[netip.Addr]bool
}

// servePlugin serves an imitated daemon at a socket until the test ends. store is that of the
// plugin's profile. Its first address is first.
func servePlugin(t *testing.T, node, socket, store string, first netip.Addr) {
	p := &plugin{
		node: node, store: store, first: first, calls: make(chan struct{}, maxCalls),
		held: map[string]engine.Attachment{}, taken: map[netip.Addr]bool{},
	}
	log := logrus.New()
	log.SetOutput(io.Discard)
	api, err := httpapi.New(httpapi.Options{
		Engine: p, Reporter: p, Addressing: httpapi.Addressing{EnableIPv4: true}, Log: log, Refusals: logging.NewRepeated(log, time.Minute),
		Peer: func(context.Context) (unixsock.Peer, bool) { return unixsock.Peer{}, true }, // root
	})
	check.Must(t, err)
	listener, err := net.Listen("unix", socket)
	check.Must(t, err)
	server := &http.Server{Handler: api, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }() // ends with Close
	t.Cleanup(func() { server.Close() })
}

// call is a call of the plugin, and then a change of what is held, which has the lock.
func (p *plugin) call(ctx context.Context, change func() (engine.Attachment, error)) (engine.Attachment, error) {
	select {
	case p.calls <- struct{}{}:
	case <-ctx.Done():
		return engine.Attachment{}, ctx.Err()
	}
	err := cluster.Sleep(ctx, pluginDelay)
	<-p.calls
	if err != nil {
		return engine.Attachment{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return change()
}

// Allocate allocates an address, or returns the one that the owner holds.
func (p *plugin) Allocate(ctx context.Context, r engine.AllocateRequest) (engine.Attachment, error) {
	if a, held := p.attachment(r.Owner); held {
		return a, nil
	}
	return p.call(ctx, func() (engine.Attachment, error) {
		if a, held := p.held[r.Owner]; held {
			return a, nil
		}
		ip := p.first
		for p.taken[ip] {
			ip = ip.Next()
		}
		return p.hold(r.Owner, r.Pool, ip), nil
	})
}

func (p *plugin) Restore(ctx context.Context, r engine.RestoreRequest) (engine.Attachment, error) {
	return p.call(ctx, func() (engine.Attachment, error) {
		if a, held := p.held[r.Owner]; held && a.Addrs()[0] == r.IP {
			return a, nil
		}
		if p.taken[r.IP] {
			return engine.Attachment{}, &attachment.Error{Kind: attachment.Exists, Err: fmt.Errorf("%s is allocated", r.IP)}
		}
		return p.hold(r.Owner, r.Pool, r.IP), nil
	})
}

// hold records an attachment. The caller has the lock.
func (p *plugin) hold(owner, pool string, ip netip.Addr) engine.Attachment {
	now := time.Now()
	a := engine.Attachment{Record: attachment.Record{
		Owner: owner, Pool: pool, Node: p.node, State: attachment.Held, Network: "pods", Claims: []attachment.Family{attachment.IPv4},
		Result:  call.Result{Addresses: []call.Address{{Prefix: netip.PrefixFrom(ip, 16)}}},
		Created: now, Changed: now,
	}}
	p.held[owner], p.taken[ip] = a, true
	return a
}

func (p *plugin) Release(ctx context.Context, r engine.ReleaseRequest) (engine.Attachment, error) {
	return p.call(ctx, func() (engine.Attachment, error) {
		for owner, a := range p.held {
			if a.Addrs()[0] == r.IP {
				delete(p.held, owner)
				delete(p.taken, r.IP)
				return a, nil
			}
		}
		return engine.Attachment{}, &attachment.Error{Kind: attachment.NotFound, Err: fmt.Errorf("%s is not allocated", r.IP)}
	})
}

func (p *plugin) All() iter.Seq[engine.Attachment] {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []engine.Attachment
	for _, owner := range slices.Sorted(maps.Keys(p.held)) {
		all = append(all, p.held[owner])
	}
	return slices.Values(all)
}

func (p *plugin) attachment(owner string) (engine.Attachment, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a, held := p.held[owner]
	return a, held
}

func (p *plugin) Record(_, owner string) (attachment.Record, bool) {
	a, held := p.attachment(owner)
	return a.Record, held
}

func (p *plugin) Report(context.Context, string) *models.DelegatedIPAMStatus {
	return &models.DelegatedIPAMStatus{
		Version: "imitated", NodeName: p.node, Ready: true,
		Pools: []*models.PoolStatus{{Pool: "default", ProfileFacts: map[string]any{"store": p.store}}}, Quarantined: []*models.QuarantinedRecord{}, Reasons: []string{},
	}
}
