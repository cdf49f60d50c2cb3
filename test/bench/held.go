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

	"github.com/delegated-ipam/delegated-ipam/pkg/attachment"
	"github.com/delegated-ipam/delegated-ipam/pkg/defaults"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
	"github.com/delegated-ipam/delegated-ipam/pkg/ownermatch"
	"github.com/delegated-ipam/delegated-ipam/pkg/restapi"
)

// heldEngine is the real engine that holds an owner's attachment and some others,
// just verified, over a journal and a plugin that are not there any more: whoever
// asked them would fail.
func heldEngine(others int) (*attachment.Engine, error) {
	owners, err := ownermatch.Parse([]string{"*"})
	if err != nil {
		return nil, err
	}
	log := logrus.New()
	log.SetOutput(io.Discard)
	world := &once{next: netip.MustParseAddr("10.15.0.2")}
	e := attachment.New(attachment.Options{
		Node: nodeName, Pools: []string{defaults.Pool}, EnableIPv4: true, Owners: owners,
		VerifyInterval: 24 * time.Hour, Budget: time.Minute, MaxProcesses: 1, MaxQueued: 1024, Log: log,
	}, world, world)
	e.Start(nil)
	names := []string{owner}
	for i := range others {
		names = append(names, fmt.Sprintf("default/other-%d", i))
	}
	for _, name := range names {
		if _, err := e.Allocate(context.Background(), attachment.AllocateRequest{Owner: name}); err != nil {
			return nil, err
		}
	}
	world.gone = true
	return e, nil
}

// heldRequest returns a request for what is held through the whole handler, beside
// some other attachments. It fails unless the answer is 201.
func heldRequest(others int) (func() error, error) {
	e, err := heldEngine(others)
	if err != nil {
		return nil, err
	}
	log := logrus.New()
	log.SetOutput(io.Discard)
	h, err := restapi.New(restapi.Options{
		Engine: e, Reporter: noReport{}, Log: log,
		Addressing: restapi.Addressing{EnableIPv4: true, RouterIPv4: netip.MustParseAddr("10.15.0.1")},
	})
	if err != nil {
		return nil, err
	}
	req := httptest.NewRequest(http.MethodPost, "/v1/ipam?family=ipv4&owner="+owner, http.NoBody)
	req.Header.Set("Content-Length", "0") // as a Go client sends it
	return func() error {
		rw := httptest.NewRecorder()
		h.ServeHTTP(rw, req)
		if rw.Code != http.StatusCreated {
			return errors.New(rw.Body.String())
		}
		return nil
	}, nil
}

// heap counts the heap allocations of a held request: those of the engine, and
// those of the whole handler with what go-openapi makes.
func (b *bench) heap() error {
	e, err := heldEngine(0)
	if err != nil {
		return err
	}
	request, err := heldRequest(0)
	if err != nil {
		return err
	}
	var failed error
	engine := testing.AllocsPerRun(100, func() {
		_, err := e.Allocate(context.Background(), attachment.AllocateRequest{Owner: owner})
		failed = errors.Join(failed, err)
	})
	handler := testing.AllocsPerRun(100, func() { failed = errors.Join(failed, request()) })
	b.report.add(
		single("heap allocations per held request, engine", "allocations", engine, reported()),
		single("heap allocations per held request, whole handler with go-openapi", "allocations", handler, reported()),
	)
	return failed
}

// once is a journal and a plugin that serve until they are gone.
type once struct {
	gone bool
	next netip.Addr
}

var errGone = errors.New("a held request asked the journal or the plugin")

func (o *once) err() error {
	if o.gone {
		return errGone
	}
	return nil
}

func (o *once) Write(record.Record) error { return o.err() }
func (o *once) Remove(string) error       { return o.err() }

func (o *once) Network(string) (call.Network, error) { return call.Network{Name: network}, nil }

func (o *once) NewInvocation(_ context.Context, n call.Network, containerID, _ string) (call.Invocation, error) {
	return call.Invocation{ContainerID: containerID, Network: n.Name, Plugin: "host-local"}, o.err()
}

func (o *once) Add(context.Context, call.Call) (call.Result, error) {
	ip := o.next
	o.next = ip.Next()
	return call.Result{Addresses: []call.Address{{Prefix: netip.PrefixFrom(ip, 16)}}}, o.err()
}

func (o *once) Del(context.Context, call.Call) error   { return o.err() }
func (o *once) Check(context.Context, call.Call) error { return o.err() }
func (o *once) Prestart(...call.Upcoming) func()       { return func() {} }

// noReport is a process that has nothing to report.
type noReport struct{}

func (noReport) Report(context.Context) restapi.Report { return restapi.Report{} }

func (o *once) Available() error { return o.err() }

func (o *once) Holds(call.Invocation, []netip.Addr) (bool, error) { return false, errGone }

func (o *once) Lookup(context.Context, call.Invocation) (call.Result, error) {
	return call.Result{}, errGone
}
