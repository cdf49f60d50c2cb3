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

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/delegated-ipam/delegated-ipam/pkg/attachment"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

// engine is an Engine that says what it is told to.
type engine struct{ pools map[string]attachment.Summary }

func (e engine) Summaries() map[string]attachment.Summary { return e.pools }
func (engine) QueueLengths() map[attachment.Queue]int {
	return map[attachment.Queue]int{attachment.QueueEntry: 2}
}
func (engine) Counters() attachment.Counters { return attachment.Counters{Lost: 3} }

// operations is an API of one operation.
type operations struct{}

func (operations) Operations() map[string][]int { return map[string][]int{"GET /known": {200, 404}} }

func (operations) Operation(r *http.Request) (string, *http.Request) {
	if r.URL.Path == "/known" {
		return "GET /known", r
	}
	return "", r
}

// newWatched is everything that a sidecar has.
func newWatched(e engine) *Metrics {
	m := New(Options{Version: "v1", Pools: []string{"default", "blue"}})
	m.Watch(e, func() Report { return Report{Ready: true, Quarantined: 4} })
	return m
}

func TestTheLinterHasNothingToSay(t *testing.T) {
	m := newWatched(engine{})
	m.API(http.NotFoundHandler(), operations{})
	m.RegisterPlugin("host-local")
	problems, err := testutil.GatherAndLint(m.registry)
	if err != nil || len(problems) > 0 {
		t.Errorf("it says %v, %v", problems, err)
	}
}

func TestWhatThereIsIsAskedForAtEachScrape(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWatched(engine{map[string]attachment.Summary{
			"default": {
				States:    map[record.State]int{record.Held: 5, record.Releasing: 1},
				Addresses: map[record.Family]int{record.IPv4: 5}, Lost: 2,
				PendingRelease: time.Now().Add(-time.Minute),
			},
			"blue":  {},
			"gone":  {States: map[record.State]int{record.Held: 1}},
			"gone2": {States: map[record.State]int{record.Held: 1}},
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
			`delegated_ipam_lost_total 3`,
			`delegated_ipam_quarantined_records 4`,
			`delegated_ipam_ready 1`,
		)
	})
}

func TestASidecarThatIsNotReadyHasAZero(t *testing.T) {
	m := New(Options{})
	m.Watch(engine{}, func() Report { return Report{} })
	wantLines(t, m, `delegated_ipam_ready 0`, `delegated_ipam_quarantined_records 0`)
}

func TestWhatClientsAskForMakesNoSeriesWithoutBound(t *testing.T) {
	m := newWatched(engine{})
	api := m.API(http.NotFoundHandler(), operations{})
	feed := func(from, to int) int {
		for i := from; i < to; i++ {
			name := fmt.Sprint("made-up-", i)
			m.Engine().ActionDone(attachment.Event{
				Action: attachment.ActionAllocate, Outcome: attachment.OutcomeRejected, Pool: name, Families: []record.Family{record.IPv4},
			})
			m.Plugin().Called(call.VerbAdd, name, call.Refused, time.Second)
			api.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/"+name, http.NoBody))
		}
		return len(lines(t, m))
	}
	few := feed(0, 100)
	if many := feed(100, 1000); many != few {
		t.Errorf("after 1000 names there are %d lines, after 100 %d", many, few)
	}
	wantLines(
		t, m, `delegated_ipam_events_total{action="allocate",family="ipv4",outcome="rejected",pool="_other"} 1000`,
		`delegated_ipam_plugin_calls_total{outcome="refused",plugin="_other",verb="ADD"} 984`,
		`delegated_ipam_api_requests_total{code="404",operation="_other"} 1000`,
	)
}

func TestARequestCountsForItsOperationWithItsCode(t *testing.T) {
	m := New(Options{})
	api := m.API(http.NotFoundHandler(), operations{})
	wantLines(t, m, `delegated_ipam_api_requests_total{code="404",operation="GET /known"} 0`)
	api.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/known", http.NoBody))
	wantLines(
		t, m, `delegated_ipam_api_requests_total{code="404",operation="GET /known"} 1`,
		`delegated_ipam_api_request_duration_seconds_count{operation="GET /known"} 1`,
	)
}

// disk is a journal that fails if it is told to.
type disk struct{ err error }

func (d disk) Write(record.Record) error { return d.err }
func (d disk) Remove(string) error       { return d.err }
func (d disk) Available() error          { return d.err }

func TestJournalWritesAreMeasuredAndTheirErrorsPassedOn(t *testing.T) {
	m, full := New(Options{}), errors.New("disk full")
	if err := m.Journal(disk{}).Write(record.Record{}); err != nil {
		t.Error(err)
	}
	if err := m.Journal(disk{full}).Write(record.Record{}); !errors.Is(err, full) {
		t.Errorf("the write ends with %v; want %v", err, full)
	}
	if err := m.Journal(disk{full}).Remove("id"); !errors.Is(err, full) {
		t.Errorf("the removal ends with %v; want %v", err, full)
	}
	wantLines(
		t, m, `delegated_ipam_journal_write_duration_seconds_count{operation="write"} 2`,
		`delegated_ipam_journal_failures_total{operation="write"} 1`,
		`delegated_ipam_journal_failures_total{operation="remove"} 1`,
	)
}

func TestAPluginThatIsExpectedHasItsZeroes(t *testing.T) {
	m := New(Options{})
	m.RegisterPlugin("host-local")
	wantLines(t, m, `delegated_ipam_plugin_calls_total{outcome="unknown",plugin="host-local",verb="DEL"} 0`, `delegated_ipam_plugin_processes 0`)
	m.Plugin().Running(1)
	m.Plugin().Called(call.VerbDel, "host-local", "", time.Second)
	wantLines(
		t, m, `delegated_ipam_plugin_calls_total{outcome="success",plugin="host-local",verb="DEL"} 1`,
		`delegated_ipam_plugin_call_duration_seconds_sum{plugin="host-local",verb="DEL"} 1`, `delegated_ipam_plugin_processes 1`,
	)
}

// lines are what a scrape gets, without comments.
func lines(t *testing.T, m *Metrics) []string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	if w.Code != http.StatusOK {
		t.Fatalf("the scrape is answered %d %s", w.Code, w.Body)
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
			t.Errorf("the scrape has no line %s, but %q", l, slices.DeleteFunc(slices.Clone(got), func(o string) bool { return !strings.HasPrefix(o, name) }))
		}
	}
}

func TestARequestCountsWithTheCodeThatItsClientReads(t *testing.T) {
	const counted = `delegated_ipam_api_requests_total{code="%d",operation="GET /known"} 1`
	for name, c := range map[string]struct {
		answer func(http.ResponseWriter)
		code   int
	}{
		"none, which is 200":         {func(http.ResponseWriter) {}, 200},
		"a body alone, which is 200": {func(w http.ResponseWriter) { fmt.Fprint(w, "x") }, 200},
		"the first of two":           {func(w http.ResponseWriter) { w.WriteHeader(404); w.WriteHeader(500) }, 404},
		"one that is documented":     {func(w http.ResponseWriter) { w.WriteHeader(404) }, 404},
		"one that is not documented": {func(w http.ResponseWriter) { w.WriteHeader(418) }, 418},
	} {
		t.Run(name, func(t *testing.T) {
			m := New(Options{})
			api := m.API(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { c.answer(w) }), operations{})
			api.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/known", http.NoBody))
			wantLines(t, m, fmt.Sprintf(counted, c.code))
		})
	}
}

// sending calls a function before the head of an answer goes out.
type sending struct {
	http.ResponseWriter
	before func()
}

func (s sending) WriteHeader(code int) {
	s.before()
	s.ResponseWriter.WriteHeader(code)
}

func TestARequestIsCountedBeforeItsClientHasTheAnswer(t *testing.T) {
	m := New(Options{})
	api := m.API(http.NotFoundHandler(), operations{})
	sent := false
	w := sending{httptest.NewRecorder(), func() {
		sent = true
		wantLines(t, m,
			`delegated_ipam_api_requests_total{code="404",operation="GET /known"} 1`,
			`delegated_ipam_api_request_duration_seconds_count{operation="GET /known"} 1`)
	}}
	api.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/known", http.NoBody))
	if !sent {
		t.Error("there was no answer")
	}
}
