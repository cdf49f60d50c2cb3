package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
)

// transition is a change of the durable state of an attachment. Without a record the state is none.
type transition struct{ from, to attachment.State }

const none attachment.State = "[*]"

// labels have the transitions in the order of the diagram, with what causes them.
var labels = []struct {
	transition
	cause string
}{
	{transition{none, attachment.Adding}, "requested"},
	{transition{none, attachment.Held}, "found in the plugin's store, or handed over"},
	{transition{none, attachment.Releasing}, "DEL of an unknown container"},
	{transition{none, attachment.Cooldown}, "released after a hand-over whose write failed"},
	{transition{attachment.Adding, attachment.Held}, "ADD returned addresses"},
	{transition{attachment.Adding, attachment.Releasing}, "interrupted or expired"},
	{transition{attachment.Adding, none}, "ADD failed, DEL succeeded"},
	{transition{attachment.Held, attachment.Adding}, "lost by the plugin, or outside the ranges"},
	{transition{attachment.Held, attachment.Cooldown}, "released, with a delay"},
	{transition{attachment.Held, attachment.Releasing}, "released or expired"},
	{transition{attachment.Held, none}, "handed over, or the plugin itself has added its ID again"},
	{transition{attachment.Cooldown, attachment.Held}, "requested again"},
	{transition{attachment.Cooldown, attachment.Adding}, "requested again, lost"},
	{transition{attachment.Cooldown, attachment.Releasing}, "deadline"},
	{transition{attachment.Cooldown, none}, "handed over, or given back"},
	{transition{attachment.Releasing, attachment.Adding}, "requested again"},
	{transition{attachment.Releasing, none}, "DEL succeeded"},
	{transition{attachment.Adding, attachment.Tombstone}, "undone, but a DEL may still act"},
	{transition{attachment.Releasing, attachment.Tombstone}, "released, but a DEL may still act"},
	{transition{attachment.Tombstone, attachment.Adding}, "requested again"},
	{transition{attachment.Tombstone, none}, "deadline"},
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

func durable(r *attachment.Record) attachment.State {
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
	return checkDrawn(page, diagramBegin, diagramEnd, "```mermaid\nstateDiagram-v2\n"+lines.String()+"```\n", write)
}
