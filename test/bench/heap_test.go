package main

import (
	"context"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/pkg/attachment"
)

// What a held request may allocate at most. Who makes it less lowers these.
const (
	engineAllocations  = 8
	handlerAllocations = 109
)

func TestAHeldRequestMakesNoMoreHeapAllocationsThanBefore(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates, too; make bench-counts counts without it")
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
		run  func() error
		most float64
	}{
		"in the engine": {func() error {
			_, err := e.Allocate(context.Background(), attachment.AllocateRequest{Owner: owner})
			return err
		}, engineAllocations},
		"in the whole handler":                          {alone, handlerAllocations},
		"in the whole handler, among 1,000 attachments": {among, handlerAllocations},
	} {
		t.Run(name, func(t *testing.T) { wantAllocations(t, 200, tt.most, tt.run) })
	}
}

// wantAllocations runs something so many times, and fails if it makes more heap
// allocations each time than at most so many.
func wantAllocations(t *testing.T, runs int, most float64, run func() error) {
	t.Helper()
	got := testing.AllocsPerRun(runs, func() {
		if err := run(); err != nil {
			t.Fatal(err)
		}
	})
	t.Logf("%.0f allocations, at most %.0f", got, most)
	if got > most {
		t.Errorf("it made %.0f heap allocations; want at most %.0f", got, most)
	}
}

func BenchmarkHeldRequestInTheWholeHandler(b *testing.B) {
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
