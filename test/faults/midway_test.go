package faults

import (
	"errors"
	"net/http"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// The record before a plugin call is durable and the one after it cannot be
// written: the plugin has done what the disk does not know.

func TestADiskThatFailsWhileAnADDRunsHandsNothingOut(t *testing.T) {
	t.Parallel()
	newTally(t, storage).watch(t)
	b := newBench(t, "host-local")
	a := b.failWhile(t, "ADD", func() (harness.Response, error) {
		return b.Try(http.MethodPost, "/v1/ipam?owner=router")
	}, func() { b.wantState(t, "router", "adding") })
	wantAnswer(t, a, http.StatusBadGateway, "the journal could not be written")
	b.AllocateFor(t, "router")
	b.WaitConsistent(t)
	b.wantNeighbour(t)
}

func TestADiskThatFailsWhileADELRunsKeepsTheRelease(t *testing.T) {
	t.Parallel()
	newTally(t, storage).watch(t)
	b := newBench(t, "host-local")
	a := b.failWhile(t, "DEL", func() (harness.Response, error) {
		return b.Try(http.MethodDelete, "/v1/ipam/"+neighbour)
	}, func() { b.wantState(t, "neighbour", "releasing") })
	wantAnswer(t, a, http.StatusInternalServerError, "the record could not be removed")
	b.releaseUntilItWorks(t)
	b.wantState(t, "neighbour", none)
	b.WaitConsistent(t)
}

// failWhile sends a request, takes the state folder away while the verb runs,
// looks at what is left, and brings the folder back. It returns the answer.
func (b bench) failWhile(t *testing.T, verb string, request func() (harness.Response, error), look func()) harness.Response {
	t.Helper()
	before := b.plugin.CallCount(t, verb)
	b.plugin.SetScript(t, verb, `{"times":1,"gate":"go"}`)
	type outcome struct {
		harness.Response
		err error
	}
	answered := make(chan outcome, 1)
	go func() {
		a, err := request()
		answered <- outcome{a, err}
	}()
	harness.Eventually(t, "the plugin to begin", func() error {
		if b.plugin.CallCount(t, verb) == before {
			return errors.New("it was not called")
		}
		return nil
	})
	back := moveAway(t, b.node, b.Sidecar)
	b.plugin.Open(t, "go")
	a := <-answered
	must(t, a.err)
	look()
	back()
	return a.Response
}
