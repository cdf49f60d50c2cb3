package metrics

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/engine"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/engine/protocol"
)

func BenchmarkEvent(b *testing.B) {
	m := New(Options{Pools: []string{"default"}})
	e := engine.Event{Action: protocol.Allocate, Outcome: engine.OutcomeSuccess, Pool: "default", Families: families()}
	b.ReportAllocs()
	for b.Loop() {
		m.ActionDone(e)
	}
}

func BenchmarkWait(b *testing.B) {
	m := New(Options{})
	b.ReportAllocs()
	for b.Loop() {
		m.QueueWait(engine.QueueEntry, time.Millisecond)
	}
}

func BenchmarkCall(b *testing.B) {
	m := New(Options{})
	b.ReportAllocs()
	for b.Loop() {
		m.Called(call.VerbAdd, "host-local", "", time.Millisecond)
	}
}

func BenchmarkJournal(b *testing.B) {
	m := New(Options{})
	b.ReportAllocs()
	for b.Loop() {
		m.JournalChanged(JournalWrite, time.Now(), nil)
	}
}

func BenchmarkRequest(b *testing.B) {
	m := New(Options{})
	b.ReportAllocs()
	for b.Loop() {
		m.Requested("GET /known", http.StatusOK, time.Millisecond)
	}
}

func BenchmarkScrape(b *testing.B) {
	m := newRegistered(fakeEngine{})
	m.RegisterPlugin("host-local")
	b.ReportAllocs()
	for b.Loop() {
		m.Handler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	}
}

func TestAllocations(t *testing.T) {
	m := New(Options{Pools: []string{"default"}})
	e := engine.Event{Action: protocol.Allocate, Outcome: engine.OutcomeSuccess, Pool: "default", Families: families()}
	for name, observe := range map[string]func(){
		"event":          func() { m.ActionDone(e) },
		"queue wait":     func() { m.QueueWait(engine.QueueEntry, time.Millisecond) },
		"plugin call":    func() { m.Called(call.VerbAdd, "host-local", "", time.Millisecond) },
		"plugin process": func() { m.Running(1) },
		"journal write":  func() { m.JournalChanged(JournalWrite, time.Now(), nil) },
	} {
		if n := testing.AllocsPerRun(100, observe); n > 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}
