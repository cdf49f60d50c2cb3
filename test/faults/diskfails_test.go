package faults

import (
	"net/http"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// In these tests the write before a plugin call is durable and the write after it fails, so the
// plugin is ahead of the journal.

//evidence:design/reliability the disk fails while ADD runs
func TestDiskFailsDuringADD(t *testing.T) {
	t.Parallel()
	newStats(t, storage).countCase(t)
	f := newPluginFixture(t, "host-local")
	a := f.failDuring(t, "ADD", http.MethodPost, "/v1/ipam?owner=router", func() { f.wantState(t, "router", "adding") })
	a.WantError(t, http.StatusBadGateway, "the journal could not be written")
	f.AllocateFor(t, "router")
	f.WaitConsistent(t)
	f.wantOther(t)
}

//evidence:design/reliability the disk fails while DEL runs
func TestDiskFailsDuringDEL(t *testing.T) {
	t.Parallel()
	newStats(t, storage).countCase(t)
	f := newPluginFixture(t, "host-local")
	a := f.failDuring(t, "DEL", http.MethodDelete, "/v1/ipam/"+otherAddress, func() { f.wantState(t, "other", "releasing") })
	a.WantError(t, http.StatusInternalServerError, "the record could not be removed")
	f.releaseOther(t)
	f.wantState(t, "other", none)
	f.WaitConsistent(t)
}

// failDuring sends a request, moves the state directory away while the verb runs, calls check, and
// restores the directory. It returns the response.
func (f pluginFixture) failDuring(t *testing.T, verb, method, path string, check func()) harness.Response {
	t.Helper()
	before := f.plugin.CallCount(t, verb)
	f.plugin.SetScript(t, verb, `{"times":1,"gate":"go"}`)
	pending := make(chan answered, 1)
	go func() {
		a, err := f.Try(method, path)
		pending <- answered{a, err}
	}()
	f.plugin.WaitCall(t, verb, before)
	back := moveAway(t, f.node, f.Sidecar)
	f.plugin.Open(t, "go")
	a := <-pending
	harness.Must(t, a.err)
	check()
	back()
	return a.Response
}
