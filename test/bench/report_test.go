package main

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
)

// example is a report of invented values.
func example() *report {
	r := &report{Machine: "a machine & its disk", Pairs: 4, Growth: []point{
		{Attachments: 10, Plugin: sample{7, 8, 9}, Own: sample{2}, Held: sample{0.2}},
		{Attachments: 10000, Plugin: sample{200}, Own: sample{2.1}, Held: sample{0.21}},
	}}
	r.add(
		compared("allocate", "bare", comparison{sample{9, 10, 11, 30}, sample{8, 8, 9, 20}}, atMost(1.35)),
		compared("release", "bare", comparison{sample{9}, sample{3}}, atMost(1.40)),
		compared("pairs", "bare", comparison{sample{90}, sample{100}}, atLeast(0.80)),
		compared("start", "empty", comparison{sample{300}, sample{100}}, atMostMore(150)),
		missing("held", "Cilium", "not measured", atMost(1)),
		single("memory", "MiB", 24.96, below(25)),
	)
	return r
}

func TestReportTables(t *testing.T) {
	got := example().markdown()
	for _, want := range []string{
		"a machine & its disk. Each figure is median / p99 of 4 alternating pairs",
		"| allocate | 10 / 30 ms | bare | 8.00 / 20 ms | 1.25 | ratio <= 1.35 |",
		"| release | 9.00 / 9.00 ms | bare | 3.00 / 3.00 ms | 3.00 | ratio <= 1.40 **missed** |",
		"| pairs | 90 / 90 ms | bare | 100 / 100 ms | 0.90 | ratio >= 0.80 |",
		"| start | 300 / 300 ms | empty | 100 / 100 ms | 3.00 | at most 150 ms more **missed** |",
		"| held | not measured | Cilium |  |  | ratio <= 1.00 |",
		"| memory | 25.0 MiB |  |  |  | <= 25 |",
		"| 10,000 | 200 / 200 ms | 2.10 / 2.10 ms | 0.210 / 0.210 ms |",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the table lacks %q:\n%s", want, got)
		}
	}
}

func TestQuantile(t *testing.T) {
	s := sample{5, 1, 4, 2, 3}
	for q, want := range map[float64]float64{0: 1, 0.2: 1, 0.5: 3, 0.6: 3, 0.61: 4, 0.99: 5, 1: 5} {
		if got := s.quantile(q); got != want {
			t.Errorf("quantile %v is %v; want %v", q, got, want)
		}
	}
	if got := (sample{}).median(); !math.IsNaN(got) {
		t.Errorf("the median of nothing is %v; want none", got)
	}
}

func TestAlternate(t *testing.T) {
	var order []string
	var c comparison
	note := func(name string, figure float64) func() []float64 {
		return func() []float64 {
			order = append(order, name)
			return []float64{figure}
		}
	}
	alternate(4, note("a", 1), note("b", 2), &c)
	// warmUp is odd, so the first that counts is the other one's.
	if want := strings.Split("b a a b b a a b", " "); !slices.Equal(order[2*warmUp:], want) {
		t.Errorf("the order is %q; want %q", order, want)
	}
	if want := (comparison{sample{1, 1, 1, 1}, sample{2, 2, 2, 2}}); !slices.Equal(c.ours, want.ours) || !slices.Equal(c.reference, want.reference) {
		t.Errorf("the figures are %v; want %v", c, want)
	}
	broken := errors.New("broken")
	if err := catch(func() { alternate(1, note("a", 1), func() []float64 { panic(failure{broken}) }, &c) }); !errors.Is(err, broken) {
		t.Errorf("got %v; want the error of a run", err)
	}
}
