package benchbridge

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// report has the results of one run.
type report struct {
	// Machine names the machine.
	Machine string

	mu sync.Mutex
	// rows has the rows of each case, in the order of cases.
	rows map[supplier]map[int][]row
}

// row is one measurement of a case. Target is empty without a target; Verdict says if it is missed.
type row struct{ Case, What, Value, Target, Verdict string }

// verdict returns the text after a target.
func verdict(reached bool) string {
	if reached {
		return ""
	}
	return ", **missed**"
}

// add adds the rows of the nth case.
func (r *report) add(s supplier, n int, rows []row) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rows == nil {
		r.rows = map[supplier]map[int][]row{ownRange: {}, sharedRange: {}, operator: {}}
	}
	r.rows[s][n] = rows
}

// markdown returns the report as a table: a row with the name of each case, then its measurements. Those
// of the suppliers stand next to each other; the target is that of the bridge, of its own range where that
// was measured.
func (r *report) markdown() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "%s.\n\n", r.Machine)
	b.WriteString("| measurement | bridge, own range | bridge, shared range | cilium-operator | target |\n|---|---|---|---|---|\n")
	for n := range cases() {
		own, shared, theirs := r.rows[ownRange][n], r.rows[sharedRange][n], r.rows[operator][n]
		for i, of := range shared {
			if i < len(own) {
				of.Target, of.Verdict = own[i].Target, own[i].Verdict
			}
			if i == 0 {
				fmt.Fprintf(&b, "| **%s** |\n", of.Case)
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", of.What, value(own, i), value(shared, i), value(theirs, i), of.Target+of.Verdict)
		}
	}
	return b.String()
}

// value returns the value of a row, empty if there is none.
func value(rows []row, i int) string {
	if i >= len(rows) {
		return ""
	}
	return rows[i].Value
}

// seconds formats a time in seconds.
func seconds(d time.Duration) string { return fmt.Sprintf("%.1fs", d.Seconds()) }

// spread formats median and maximum.
func spread(all []time.Duration) string {
	return fmt.Sprintf("p50 %s, max %s", seconds(median(all)), seconds(maximum(all)))
}

// median returns the middle one, the smaller one of two; 0 without values.
func median(all []time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(all))[(len(all)-1)/2]
}

// maximum returns the largest one, 0 without values.
func maximum(all []time.Duration) time.Duration {
	var most time.Duration
	for _, d := range all {
		most = max(most, d)
	}
	return most
}
