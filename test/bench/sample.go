package main

import (
	"math"
	"slices"
	"time"
)

// sample is measured values, in the unit of their row.
type sample []float64

// add adds a time in milliseconds.
func (s *sample) add(d time.Duration) { *s = append(*s, float64(d)/float64(time.Millisecond)) }

// quantile returns the smallest value that at least the share q of all values does not exceed; NaN
// without values.
func (s sample) quantile(q float64) float64 {
	if len(s) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(s))
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}

func (s sample) median() float64 { return s.quantile(0.5) }

func (s sample) p99() float64 { return s.quantile(0.99) }

// warmUp is the number of first runs whose times are dropped.
const warmUp = 5

// alternate runs ours and the reference n times each, alternating which is first, after warmUp runs
// that do not count.
func alternate(n int, ours, reference func(counts bool) error) error {
	for i := range n + warmUp {
		first, second := ours, reference
		if i%2 == 1 {
			first, second = reference, ours
		}
		for _, next := range []func(bool) error{first, second} {
			if err := next(i >= warmUp); err != nil {
				return err
			}
		}
	}
	return nil
}

// comparison has the samples of ours and of the reference.
type comparison struct{ ours, reference sample }
