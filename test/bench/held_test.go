package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/engine"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/httpapi"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/unixsock"
	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/internal/ownermatch"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	public "github.com/delegated-ipam/delegated-ipam/pkg/client"
)

// heldEngine returns an engine that holds an owner's attachment and some others, just verified.
// Its journal and plugin fail from then on.
func heldEngine(t *testing.T, others int) *engine.Engine {
	t.Helper()
	owners, err := ownermatch.Parse([]string{"*"})
	check.Must(t, err)
	backend := &fakeBackend{next: netip.MustParseAddr("10.15.0.2")}
	e := engine.New(engine.Options{
		Options: attachment.Options{Node: nodeName, EnableIPv4: true, VerifyInterval: 24 * time.Hour},
		Pools:   []string{public.DefaultPool}, DefaultPool: public.DefaultPool, Owners: owners,
		Budget: time.Minute, MaxProcesses: 1, MaxQueued: 1024, MaxAttachments: 100_000, Log: quiet(),
	}, backend, backend)
	e.Start(nil)
	names := []string{owner}
	for i := range others {
		names = append(names, fmt.Sprintf("default/other-%d", i))
	}
	for _, name := range names {
		_, err := e.Allocate(t.Context(), engine.AllocateRequest{Owner: name})
		check.Must(t, err)
	}
	backend.closed = true
	return e
}

// heldRequest returns a function that requests a held address through the whole handler, with
// other attachments present. It returns an error unless the response is 201.
func heldRequest(t *testing.T, others int) func() error {
	t.Helper()
	h, err := httpapi.New(httpapi.Options{
		Engine: heldEngine(t, others), Reporter: noReport{}, Log: quiet(), Refusals: logging.NewRepeated(quiet(), time.Minute),
		Peer:       func(context.Context) (unixsock.Peer, bool) { return unixsock.Peer{}, true }, // root
		Addressing: httpapi.Addressing{EnableIPv4: true, RouterIPv4: netip.MustParseAddr("10.15.0.1")},
	})
	check.Must(t, err)
	req := httptest.NewRequest(http.MethodPost, "/v1/ipam?family=ipv4&owner="+owner, http.NoBody)
	req.Header.Set("Content-Length", "0") // as a Go client sends it
	return func() error {
		rw := httptest.NewRecorder()
		h.ServeHTTP(rw, req)
		if rw.Code != http.StatusCreated {
			return errors.New(rw.Body.String())
		}
		return nil
	}
}

func quiet() *logrus.Logger {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return log
}

// fakeBackend is a journal and a plugin. Both fail once they are closed, as by a method that it lacks.
type fakeBackend struct {
	engine.Journal
	engine.Plugin
	closed bool
	next   netip.Addr
}

var errClosed = errors.New("a request for a held address called the journal or the plugin")

func (o *fakeBackend) err() error {
	if o.closed {
		return errClosed
	}
	return nil
}

func (o *fakeBackend) Write(attachment.Record, ...string) error { return o.err() }

func (o *fakeBackend) Available() error { return o.err() }

func (o *fakeBackend) Network(string) (call.Network, error) { return call.Network{Name: network}, nil }

func (o *fakeBackend) NewInvocation(_ context.Context, n call.Network, containerID, _ string) (call.Invocation, error) {
	return call.Invocation{ContainerID: containerID, Network: n.Name, Plugin: "host-local"}, o.err()
}

func (o *fakeBackend) Add(context.Context, call.Call) (call.Result, error) {
	ip := o.next
	o.next = ip.Next()
	return call.Result{Addresses: []call.Address{{Prefix: netip.PrefixFrom(ip, 16)}}}, o.err()
}

func (o *fakeBackend) Del(context.Context, call.Call) error { return o.err() }

func (o *fakeBackend) Range(string, []netip.Addr) call.Range { return "" }

func (o *fakeBackend) Configured(string) error { return nil }

func (o *fakeBackend) Lookup(context.Context, call.Invocation) (call.Result, error) {
	return call.Result{}, errClosed
}

func (o *fakeBackend) Holds(call.Invocation, []netip.Addr) (bool, error) { return false, errClosed }

// noReport has an empty report.
type noReport struct{}

func (noReport) Report(context.Context, string) *models.DelegatedIPAMStatus {
	return &models.DelegatedIPAMStatus{}
}
