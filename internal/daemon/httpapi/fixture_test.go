package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"iter"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/engine"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/httpapi"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/unixsock"
	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

// fakeEngine is an Engine that returns preset results and records its calls.
type fakeEngine struct {
	got   engine.Attachment
	err   error
	all   []engine.Attachment
	each  iter.Seq[engine.Attachment] // instead of all, if not nil
	panic any
	// lookupPanic, if not nil, is the value with which Record panics.
	lookupPanic any

	allocated []engine.AllocateRequest
	restored  []engine.RestoreRequest
	released  []engine.ReleaseRequest
	ctx       context.Context

	// containers is the number of calls for containers.
	containers int
}

func (e *fakeEngine) Allocate(ctx context.Context, r engine.AllocateRequest) (engine.Attachment, error) {
	if e.panic != nil {
		panic(e.panic)
	}
	e.ctx, e.allocated = ctx, append(e.allocated, r)
	return e.got, e.err
}

func (e *fakeEngine) Restore(ctx context.Context, r engine.RestoreRequest) (engine.Attachment, error) {
	e.ctx, e.restored = ctx, append(e.restored, r)
	return e.got, e.err
}

func (e *fakeEngine) Release(ctx context.Context, r engine.ReleaseRequest) (engine.Attachment, error) {
	e.ctx, e.released = ctx, append(e.released, r)
	return e.got, e.err
}

func (e *fakeEngine) AddContainer(ctx context.Context, _ string, _ call.Container) (engine.Attachment, error) {
	return e.container(ctx)
}

func (e *fakeEngine) DelContainer(ctx context.Context, _ string, _ call.Container) (engine.Attachment, error) {
	return e.container(ctx)
}

func (e *fakeEngine) CheckContainer(ctx context.Context, _ string, _ call.Container) (engine.Attachment, error) {
	return e.container(ctx)
}

func (e *fakeEngine) container(ctx context.Context) (engine.Attachment, error) {
	e.ctx = ctx
	e.containers++
	return e.got, e.err
}

func (e *fakeEngine) GC(ctx context.Context, _ string, _ []call.Attachment) error {
	_, err := e.container(ctx)
	return err
}

func (e *fakeEngine) All() iter.Seq[engine.Attachment] {
	if e.each != nil {
		return e.each
	}
	return slices.Values(e.all)
}

func (e *fakeEngine) Record(pool, owner string) (attachment.Record, bool) {
	if e.lookupPanic != nil {
		panic(e.lookupPanic)
	}
	i := slices.IndexFunc(e.all, func(a engine.Attachment) bool { return a.Pool == pool && a.Owner == owner })
	if i < 0 {
		return attachment.Record{}, false
	}
	return e.all[i].Record, true
}

// calls returns the number of calls that change attachments.
func (e *fakeEngine) calls() int {
	return len(e.allocated) + len(e.restored) + len(e.released) + e.containers
}

// reporter returns copies of a report, with the lists that every report has. That of a network names it.
type reporter struct{ models.DelegatedIPAMStatus }

func (r reporter) Report(_ context.Context, network string) *models.DelegatedIPAMStatus {
	r.Pools, r.Reasons = append([]*models.PoolStatus{}, r.Pools...), append([]string{}, r.Reasons...)
	r.Quarantined = append([]*models.QuarantinedRecord{}, r.Quarantined...)
	if network != "" {
		r.Ready, r.Reasons = false, []string{"report of network " + network}
	}
	return &r.DelegatedIPAMStatus
}

type fixture struct {
	engine   *fakeEngine
	handler  *httpapi.API
	contract contract
	log      *test.Hook
	logger   *logrus.Logger
	// peer is the peer of each client: root, unless a test changes it.
	peer unixsock.Peer
	// done are the requests that Options.Done has got.
	done []string
	// refusals is the log of refused requests.
	refusals *logging.Repeated
}

func newDual(t testing.TB) *fixture {
	t.Helper()
	return newFixture(t, dualStack)
}

func newFixture(t testing.TB, node httpapi.Addressing) *fixture {
	t.Helper()
	return newFixtureWith(t, httpapi.Options{Addressing: node})
}

func newFixtureWith(t testing.TB, o httpapi.Options) *fixture {
	t.Helper()
	log, hook := test.NewNullLogger()
	log.SetLevel(logrus.DebugLevel)
	e := &fakeEngine{}
	contract, err := readContract()
	check.Must(t, err)
	f := &fixture{engine: e, contract: contract, log: hook, logger: log, refusals: logging.NewRepeated(log, time.Hour)}
	t.Cleanup(f.refusals.Stop)
	o.Engine, o.Log, o.Refusals = e, log, f.refusals
	if o.Reporter == nil {
		o.Reporter = reporter{}
	}
	if o.Peer == nil {
		o.Peer = func(context.Context) (unixsock.Peer, bool) { return f.peer, true }
	}
	o.Done = func(operation string, code int, _ time.Duration) {
		f.done = append(f.done, fmt.Sprint(operation, " ", code))
	}
	f.handler, err = httpapi.New(o)
	check.Must(t, err)
	return f
}

// reset forgets calls and log lines, so that the cases of a table can share a fixture.
func (f *fixture) reset() *fixture {
	*f.engine, f.done = fakeEngine{}, nil
	f.refusals.Stop()
	f.log.Reset()
	return f
}

func (f *fixture) logLine(t *testing.T) *logrus.Entry {
	t.Helper()
	line := f.log.LastEntry()
	if line == nil {
		t.Fatal("the request has no log line")
	}
	return line
}

var dualStack = httpapi.Addressing{
	EnableIPv4: true, EnableIPv6: true,
	RouterIPv4: netip.MustParseAddr("10.1.0.2"), RouterIPv6: netip.MustParseAddr("fd00:1::2"),
	RangeIPv4: netip.MustParsePrefix("10.1.0.0/16"), RangeIPv6: netip.MustParsePrefix("fd00:1::/64"),
}

// held returns a dual-stack attachment whose two families are claimed.
func held(owner string) engine.Attachment {
	at := time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC)
	return engine.Attachment{
		Record: attachment.Record{
			ContainerID: "cilium-agent-" + owner + "-0123456789abcdef",
			Owner:       owner,
			Pool:        "default",
			Node:        "node-1",
			State:       attachment.Held,
			Network:     "pods",
			Result: call.Result{Addresses: []call.Address{
				{Prefix: netip.MustParsePrefix("10.1.2.3/24"), Gateway: netip.MustParseAddr("10.1.2.1")},
				{Prefix: netip.MustParsePrefix("fd00:1::203/120"), Gateway: netip.MustParseAddr("fe80::1")},
			}},
			Claims:      []attachment.Family{attachment.IPv4, attachment.IPv6},
			Invocations: []call.Invocation{{IfName: "eth9"}, {IfName: "eth0"}},
			Created:     at,
			Changed:     at.Add(time.Second),
		},
	}
}

// golden compares a response with testdata/<name>.json, both indented.
func golden(t *testing.T, name, body string) {
	t.Helper()
	var got bytes.Buffer
	if err := json.Indent(&got, []byte(body), "", "  "); err != nil {
		t.Fatalf("%v in %q", err, body)
	}
	path := filepath.Join("testdata", name+".json")
	if *update {
		check.Must(t, os.WriteFile(path, got.Bytes(), 0o644))
	}
	want, err := os.ReadFile(path)
	check.Must(t, err)
	check.True(t, got.String() == string(want), "got\n%s\nwant, as in %s,\n%s", got.String(), path, want)
}
