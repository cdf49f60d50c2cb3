package metrics

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/engine"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

func BenchmarkEvent(b *testing.B) {
	m := New(Options{Pools: []string{"default"}})
	e := engine.Event{Action: engine.ActionAllocate, Outcome: engine.OutcomeSuccess, Pool: "default", Families: families()}
	b.ReportAllocs()
	for b.Loop() {
		m.Engine().ActionDone(e)
	}
}

func BenchmarkWait(b *testing.B) {
	m := New(Options{})
	b.ReportAllocs()
	for b.Loop() {
		m.Engine().QueueWait(engine.QueueEntry, time.Millisecond)
	}
}

func BenchmarkCall(b *testing.B) {
	m := New(Options{})
	b.ReportAllocs()
	for b.Loop() {
		m.Plugin().Called(call.VerbAdd, "host-local", "", time.Millisecond)
	}
}

func BenchmarkJournal(b *testing.B) {
	j := New(Options{}).Journal(disk{})
	b.ReportAllocs()
	for b.Loop() {
		_ = j.Write(record.Record{})
	}
}

func BenchmarkRequest(b *testing.B) {
	next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	for name, h := range map[string]http.Handler{"measured": New(Options{}).API(next, operations{}), "not measured": next} {
		b.Run(name, func(b *testing.B) {
			r, w := httptest.NewRequest(http.MethodGet, "/known", http.NoBody), httptest.NewRecorder()
			b.ReportAllocs()
			for b.Loop() {
				h.ServeHTTP(w, r)
			}
		})
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
	j := m.Journal(disk{})
	e := engine.Event{Action: engine.ActionAllocate, Outcome: engine.OutcomeSuccess, Pool: "default", Families: families()}
	for name, observe := range map[string]func(){
		"event":          func() { m.Engine().ActionDone(e) },
		"queue wait":     func() { m.Engine().QueueWait(engine.QueueEntry, time.Millisecond) },
		"plugin call":    func() { m.Plugin().Called(call.VerbAdd, "host-local", "", time.Millisecond) },
		"plugin process": func() { m.Plugin().Running(1) },
		"journal write":  func() { _ = j.Write(record.Record{}) },
	} {
		if n := testing.AllocsPerRun(100, observe); n > 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}
