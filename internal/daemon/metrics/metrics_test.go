package metrics

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/engine"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

type fakeEngine struct{ pools map[string]engine.Summary }

func (e fakeEngine) Summaries() map[string]engine.Summary { return e.pools }
func (fakeEngine) QueueLengths() map[engine.Queue]int {
	return map[engine.Queue]int{engine.QueueEntry: 2}
}

func (fakeEngine) Count(k attachment.EventKind) uint64 {
	return map[attachment.EventKind]uint64{attachment.EventLost: 3}[k]
}

func operations() map[string][]int { return map[string][]int{"GET /known": {200, 404}} }

func newRegistered(e fakeEngine) *Metrics {
	m := New(Options{Version: "v1", Pools: []string{"default", "blue"}})
	m.Register(e, func() *models.DelegatedIPAMStatus {
		return &models.DelegatedIPAMStatus{
			Ready: true, Quarantined: make([]*models.QuarantinedRecord, 4),
			Pools: []*models.PoolStatus{
				{Pool: "blue", CniVersion: "1.1.0", Addresses: []*models.PoolAddresses{{Family: "ipv6", Total: new(254.0), Used: 9, Free: new(245.0)}}},
				{Pool: "default", CniVersion: "1.1.0"}, // its ranges are not known
			},
		}
	})
	return m
}

func TestCollector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newRegistered(fakeEngine{map[string]engine.Summary{
			"default": {
				States:    map[attachment.State]int{attachment.Held: 5, attachment.Releasing: 1},
				Addresses: map[attachment.Family]int{attachment.IPv4: 5}, Leased: map[attachment.Family]int{attachment.IPv4: 6}, Lost: 2,
				PendingRelease: time.Now().Add(-time.Minute),
			},
			"blue":  {},
			"gone":  {States: map[attachment.State]int{attachment.Held: 1}},
			"gone2": {States: map[attachment.State]int{attachment.Held: 1}},
		}})
		wantLines(
			t, m, `delegated_ipam_attachments{pool="default",state="held"} 5`,
			`delegated_ipam_attachments{pool="blue",state="held"} 0`,
			`delegated_ipam_attachments{pool="_other",state="held"} 2`,
			`delegated_ipam_addresses{family="ipv4",pool="default"} 5`,
			`delegated_ipam_lost_attachments{pool="default"} 2`,
			`delegated_ipam_pending_releases{pool="default"} 1`,
			`delegated_ipam_pending_release_age_seconds{pool="default"} 60`,
			`delegated_ipam_pending_release_age_seconds{pool="blue"} 0`,
			`delegated_ipam_queue_length{queue="attachment"} 2`,
			`delegated_ipam_range_addresses{family="ipv6",pool="blue"} 254`,
			`delegated_ipam_range_used_addresses{family="ipv6",pool="blue"} 9`,
			`delegated_ipam_range_free_addresses{family="ipv6",pool="blue"} 245`,
			`delegated_ipam_attachments_lost_total 3`,
			`delegated_ipam_quarantined_records 4`,
			`delegated_ipam_ready 1`,
		)
	})
}

func TestNotReady(t *testing.T) {
	m := New(Options{})
	m.Register(fakeEngine{}, func() *models.DelegatedIPAMStatus { return &models.DelegatedIPAMStatus{} })
	wantLines(t, m, `delegated_ipam_ready 0`, `delegated_ipam_quarantined_records 0`)
}

func TestBoundedSeries(t *testing.T) {
	m := newRegistered(fakeEngine{})
	feed := func(from, to int) int {
		for i := from; i < to; i++ {
			name := fmt.Sprint("made-up-", i)
			m.Happened(engine.Event{
				Event:  attachment.Event{Kind: engine.Done},
				Action: attachment.Allocate, Outcome: engine.OutcomeRejected, Pool: name, Families: []attachment.Family{attachment.IPv4},
			})
			m.Called(call.VerbAdd, name, call.Refused, time.Second)
			m.Requested("", http.StatusNotFound, time.Second)
		}
		return len(lines(t, m))
	}
	few := feed(0, 100)
	check.Equal(t, "lines after 1000 names", feed(100, 1000), few)
	wantLines(
		t, m, `delegated_ipam_events_total{action="allocate",family="ipv4",outcome="rejected",pool="_other"} 1000`,
		`delegated_ipam_plugin_calls_total{outcome="refused",plugin="_other",verb="ADD"} 984`,
		`delegated_ipam_api_requests_total{code="404",operation="_other"} 1000`,
	)
}

func TestAPI(t *testing.T) {
	m := New(Options{})
	m.RegisterAPI(operations())
	wantLines(t, m, `delegated_ipam_api_requests_total{code="404",operation="GET /known"} 0`)
	m.Requested("GET /known", http.StatusNotFound, time.Second)
	m.Requested("GET /known", http.StatusTeapot, time.Second)
	wantLines(
		t, m, `delegated_ipam_api_requests_total{code="404",operation="GET /known"} 1`,
		`delegated_ipam_api_requests_total{code="418",operation="GET /known"} 1`,
		`delegated_ipam_api_request_duration_seconds_count{operation="GET /known"} 2`,
	)
}

func TestJournal(t *testing.T) {
	m, full := New(Options{}), errors.New("disk full")
	m.JournalChanged(JournalWrite, time.Now(), nil)
	m.JournalChanged(JournalWrite, time.Now(), full)
	m.JournalChanged(JournalWrite, time.Time{}, full)
	m.JournalChanged(JournalRemove, time.Now(), full)
	wantLines(
		t, m, `delegated_ipam_journal_write_duration_seconds_count{operation="write"} 2`,
		`delegated_ipam_journal_failures_total{operation="write"} 2`,
		`delegated_ipam_journal_failures_total{operation="remove"} 1`,
	)
}

func TestPlugin(t *testing.T) {
	m := New(Options{})
	m.RegisterPlugin("host-local")
	wantLines(t, m, `delegated_ipam_plugin_calls_total{outcome="unknown",plugin="host-local",verb="DEL"} 0`, `delegated_ipam_plugin_processes 0`)
	m.Running(1)
	m.Called(call.VerbDel, "host-local", "", time.Second)
	wantLines(
		t, m, `delegated_ipam_plugin_calls_total{outcome="success",plugin="host-local",verb="DEL"} 1`,
		`delegated_ipam_plugin_call_duration_seconds_sum{plugin="host-local",verb="DEL"} 1`, `delegated_ipam_plugin_processes 1`,
	)
}

func lines(t *testing.T, m *Metrics) []string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	if w.Code != http.StatusOK {
		t.Fatalf("the scrape returned %d %s", w.Code, w.Body)
	}
	all := strings.Split(strings.TrimSpace(w.Body.String()), "\n")
	return slices.DeleteFunc(all, func(l string) bool { return strings.HasPrefix(l, "#") })
}

func wantLines(t *testing.T, m *Metrics, want ...string) {
	t.Helper()
	got := lines(t, m)
	for _, l := range want {
		if !slices.Contains(got, l) {
			name, _, _ := strings.Cut(l, "{")
			t.Errorf("the scrape lacks the line %s; it has %q", l, slices.DeleteFunc(slices.Clone(got), func(o string) bool { return !strings.HasPrefix(o, name) }))
		}
	}
}

// The observations are made for each request of a client.
func TestAllocations(t *testing.T) {
	m := New(Options{Pools: []string{"default"}})
	e := engine.Event{Event: attachment.Event{Kind: engine.Done}, Action: attachment.Allocate, Outcome: engine.OutcomeSuccess, Pool: "default", Families: families()}
	for name, observe := range map[string]func(){
		"event":          func() { m.Happened(e) },
		"queue wait":     func() { m.QueueWait(engine.QueueEntry, time.Millisecond) },
		"plugin call":    func() { m.Called(call.VerbAdd, "host-local", "", time.Millisecond) },
		"plugin process": func() { m.Running(1) },
		"journal write":  func() { m.JournalChanged(JournalWrite, time.Now(), nil) },
	} {
		check.Equal(t, "allocations of "+name, testing.AllocsPerRun(100, observe), 0)
	}
}
