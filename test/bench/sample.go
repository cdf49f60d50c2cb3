package main

import (
	"math"
	"slices"
	"time"
)

// sample are measured values of one kind, in the unit of its row.
type sample []float64

// add adds a time in milliseconds.
func (s *sample) add(d time.Duration) { *s = append(*s, float64(d)/float64(time.Millisecond)) }

// quantile is the smallest value that at least the share q of all does not
// exceed; NaN for none.
func (s sample) quantile(q float64) float64 {
	if len(s) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(s))
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}

func (s sample) median() float64 { return s.quantile(0.5) }

func (s sample) p99() float64 { return s.quantile(0.99) }

// warmUp are runs whose times are dropped.
const warmUp = 5

// alternate runs ours and the reference n times each, in turns, and each first
// every other time. The first warmUp are told to be dropped.
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

// contest is a sample of ours and one of the reference.
type contest struct{ ours, reference sample }
