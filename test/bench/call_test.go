package main

import (
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// The heap allocations of the sidecar for a plugin call. Lower them when they decrease.
const (
	checkAllocations     = 180
	addAndDelAllocations = 560
)

func TestPluginCallAllocations(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates; make bench-counts counts without it")
	}
	r, _, c := components(t)
	target := call.Call{Owner: owner, Invocation: c}
	result, err := r.Add(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	held := target
	held.PrevResult = result.Raw
	for _, tt := range []struct {
		name string
		run  func() error
		max  float64
	}{
		{"CHECK", func() error { return r.Check(t.Context(), held) }, checkAllocations},
		{"DEL and ADD", func() error {
			if err := r.Del(t.Context(), target); err != nil {
				return err
			}
			_, err := r.Add(t.Context(), target)
			return err
		}, addAndDelAllocations},
	} {
		t.Run(tt.name, func(t *testing.T) { wantAllocations(t, 20, tt.max, tt.run) })
	}
}
