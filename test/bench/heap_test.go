package main

import (
	"context"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/engine"
)

// The heap allocations of a request for a held address. Lower them when they decrease.
const (
	engineAllocations  = 26
	handlerAllocations = 154
)

func TestHeldRequestAllocations(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates; make bench-counts counts without it")
	}
	e, err := heldEngine(0)
	if err != nil {
		t.Fatal(err)
	}
	alone, err := heldRequest(0)
	if err != nil {
		t.Fatal(err)
	}
	among, err := heldRequest(1000)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		run func() error
		max float64
	}{
		"in the engine": {func() error {
			_, err := e.Allocate(context.Background(), engine.AllocateRequest{Owner: owner})
			return err
		}, engineAllocations},
		"in the whole handler":                          {alone, handlerAllocations},
		"in the whole handler, among 1,000 attachments": {among, handlerAllocations},
	} {
		t.Run(name, func(t *testing.T) { wantAllocations(t, 200, tt.max, tt.run) })
	}
}

// wantAllocations fails if the mean number of heap allocations of run exceeds max.
func wantAllocations(t *testing.T, runs int, max float64, run func() error) {
	t.Helper()
	got := testing.AllocsPerRun(runs, func() {
		if err := run(); err != nil {
			t.Fatal(err)
		}
	})
	t.Logf("%.0f allocations, at most %.0f", got, max)
	if got > max {
		t.Errorf("got %.0f heap allocations; want at most %.0f", got, max)
	}
}

func BenchmarkHandlerHeld(b *testing.B) {
	request, err := heldRequest(0)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := request(); err != nil {
			b.Fatal(err)
		}
	}
}
