package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

// transition is a change of the durable state of an attachment. Without a record the state is none.
type transition struct{ from, to record.State }

const none record.State = "[*]"

// labels have the transitions in the order of the diagram, with what causes them.
var labels = []struct {
	transition
	cause string
}{
	{transition{none, record.Adding}, "requested"},
	{transition{none, record.Held}, "found in the plugin's store"},
	{transition{none, record.Releasing}, "DEL of an unknown container"},
	{transition{record.Adding, record.Held}, "ADD returned addresses"},
	{transition{record.Adding, record.Releasing}, "interrupted or expired"},
	{transition{record.Adding, none}, "ADD failed, DEL succeeded"},
	{transition{record.Held, record.Adding}, "lost by the plugin, or outside the ranges"},
	{transition{record.Held, record.Cooldown}, "released, with a delay"},
	{transition{record.Held, record.Releasing}, "released or expired"},
	{transition{record.Held, none}, "the plugin itself has added its ID again"},
	{transition{record.Cooldown, record.Held}, "requested again"},
	{transition{record.Cooldown, record.Adding}, "requested again, lost"},
	{transition{record.Cooldown, record.Releasing}, "deadline"},
	{transition{record.Releasing, record.Adding}, "requested again"},
	{transition{record.Releasing, none}, "DEL succeeded"},
	{transition{record.Adding, record.Tombstone}, "undone, but a DEL may still act"},
	{transition{record.Releasing, record.Tombstone}, "released, but a DEL may still act"},
	{transition{record.Tombstone, record.Adding}, "requested again"},
	{transition{record.Tombstone, none}, "deadline"},
}

// transitionsTo returns the durable changes of a move. A write after one whose outcome is unknown is none: it
// replaces what may be on disk.
func (w *world) transitionsTo(next *world) (all []transition) {
	for i := range w.owners {
		failed := func(o outcome) bool { return o.err == errFault }
		if o := w.owners[i]; o.st.Dirty && o.disk != nil || o.run != nil && slices.ContainsFunc(o.run.had, failed) {
			continue
		}
		if was, is := durable(w.owners[i].disk), durable(next.owners[i].disk); was != is {
			all = append(all, transition{was, is})
		}
	}
	return all
}

func durable(r *record.Record) record.State {
	if r == nil {
		return none
	}
	return r.State
}

// The diagram of a page is between these lines.
const (
	diagramBegin = "<!-- drawn by make explore DRAW=-draw -->\n"
	diagramEnd   = "<!-- end -->\n"
)

// checkDiagram compares the transitions that were seen with those of the diagram on a page, or writes them to it.
func checkDiagram(seen map[transition]bool, page string, write bool) error {
	var lines strings.Builder
	var wrong []string
	for _, l := range labels {
		if !seen[l.transition] {
			wrong = append(wrong, fmt.Sprintf("no change from %s to %s", l.from, l.to))
		}
		delete(seen, l.transition)
		fmt.Fprintf(&lines, "  %s --> %s: %s\n", l.from, l.to, l.cause)
	}
	for t := range seen {
		wrong = append(wrong, fmt.Sprintf("a change from %s to %s", t.from, t.to))
	}
	if len(wrong) > 0 {
		return fmt.Errorf("unlike labels in test/model/explore/diagram.go, the exploration has %s", strings.Join(wrong, ", "))
	}
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, rest, begins := strings.Cut(string(text), diagramBegin)
	_, after, ends := strings.Cut(rest, diagramEnd)
	drawn := before + diagramBegin + "```mermaid\nstateDiagram-v2\n" + lines.String() + "```\n" + diagramEnd + after
	switch {
	case !begins || !ends:
		return fmt.Errorf("%s has no place for the diagram; expected the lines %q and %q", page, diagramBegin, diagramEnd)
	case drawn == string(text):
		return nil
	case !write:
		return fmt.Errorf("the diagram of %s differs from the exploration; run 'make explore DRAW=-draw'", page)
	}
	return os.WriteFile(page, []byte(drawn), 0o600)
}
