package failpoint_test

import "slices"

// take removes the functions of a name from the package and returns them.
func (p *source) take(name string) *source {
	taken := &source{methods: p.methods}
	p.functions = slices.DeleteFunc(p.functions, func(f function) bool {
		if f.Name.Name != name {
			return false
		}
		taken.functions = append(taken.functions, f)
		return true
	})
	return taken
}

// changes returns the calls by which each function itself changes the disk, sorted.
func (p *source) changes() map[string][]string {
	found := map[string][]string{}
	for _, f := range p.functions {
		if names := p.direct(f); len(names) > 0 {
			found[f.Name.Name] = slices.Sorted(slices.Values(append(found[f.Name.Name], names...)))
		}
	}
	return found
}

// unguarded returns the functions that change the disk without a failpoint before, after and
// between, and the sequences that occur. For a function that reaches no point its callers are
// checked, if it has some and other packages cannot call it.
func (p *source) unguarded(sequences map[sequence]string) (bad []string, used map[sequence]bool) {
	used = map[sequence]bool{}
	for _, f := range p.functions {
		if !f.reaches() && !f.Name.IsExported() && p.called(f.Name.Name) {
			continue
		}
		events := p.events(f)
		if len(events) == 0 {
			continue
		}
		if events[0] != point || events[len(events)-1] != point || p.adjacent(f, events, sequences, used) {
			bad = append(bad, f.Name.Name)
		}
	}
	return bad, used
}

// adjacent reports whether two changes follow one another without a point, and are not a known
// sequence.
func (p *source) adjacent(f function, events []event, sequences map[sequence]string, used map[sequence]bool) bool {
	found := false
	for i := range len(events) - 1 {
		s := sequence{f.Name.Name, events[i], events[i+1]}
		if s.first == point || s.second == point {
			continue
		}
		used[s] = sequences[s] != ""
		found = found || !used[s]
	}
	return found
}
