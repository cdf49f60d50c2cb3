package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
)

// A moment is the end of a step at which the process is killed. The table of all moments of a request tells what is on
// disk and in the plugin's store then, what the next start does, and what the repeated request returns.

// requests are the ones whose moments the table has, with the configuration and what precedes them. The plugins of
// the configurations are like host-local, and like calico-ipam: without lookups, and a verb may act late.
var requests = []struct {
	name, config string
	container    bool
	before       func(*explorer, *world)
	task         task
}{
	{"Allocate, without addresses; host-local", "local", false, nil, task{action: attachment.Allocate}},
	{"Allocate, the lease has vanished; host-local", "local", false, func(x *explorer, w *world) {
		x.finish(w, 0, task{action: attachment.Allocate, families: x.cfg.families})
		w.leases = nil
	}, task{action: attachment.Allocate}},
	{"Release; host-local", "local", false, allocated, task{action: attachment.Release, ip: at4(1)}},
	{"Allocate, without addresses; remote", "remote", false, nil, task{action: attachment.Allocate}},
	{"Allocate, CHECK reports a loss; remote", "remote", false, func(x *explorer, w *world) {
		allocated(x, w)
		w.leases = nil
	}, task{action: attachment.Allocate}},
	{"ADD of a container; remote", "remote", true, nil, task{action: attachment.Allocate}},
	{"Release; remote", "remote", false, allocated, task{action: attachment.Release, ip: at4(1)}},
}

func allocated(x *explorer, w *world) {
	x.finish(w, 0, task{action: attachment.Allocate, families: x.cfg.families})
}

// finish does a task without faults, and returns the steps.
func (x *explorer) finish(w *world, i int, t task) (steps []string) {
	x.begin(w, i, t)
	for w.owners[i].run != nil {
		if s := w.owners[i].run.waits.String(); s != "" && !w.owners[i].run.acted {
			steps = append(steps, s)
		}
		*w = *x.moves(w)[0].w
	}
	return steps
}

func (s step) String() string {
	switch s.verb {
	case write:
		if s.rec.Confirming {
			return "write held, confirming"
		}
		return "write " + string(s.rec.State)
	case holds, lookup:
		return "lookup"
	case process, other:
		return ""
	}
	return map[kind]string{remove: "remove the record", add: "ADD", del: "DEL", check: "CHECK"}[s.verb]
}

// moments returns the table, in columns.
func moments() string {
	var table strings.Builder
	for _, r := range requests {
		table.WriteString(r.name + "\n")
		out := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
		fmt.Fprintln(out, "  killed after\tdisk\tstore\tthe start\tends with\tor the request again")
		c := configNamed(r.config)
		c.container = r.container
		x := newExplorer(c)
		w := x.initial()
		if r.before != nil {
			r.before(x, w)
		}
		r.task.families = c.families
		x.begin(w, 0, r.task)
		last := "nothing"
		for running := true; running; {
			running = w.owners[0].run != nil
			acted := running && w.owners[0].run.acted
			if last != "" && !acted {
				x.moment(out, w, r.task, last)
			}
			if running {
				last = w.owners[0].run.waits.String()
				w = x.moves(w)[0].w
			}
		}
		_ = out.Flush()
		table.WriteString("\n")
	}
	var trimmed strings.Builder
	for line := range strings.Lines(table.String()) {
		trimmed.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return trimmed.String()
}

func configNamed(name string) config {
	all := configs()
	return all[slices.IndexFunc(all, func(c config) bool { return c.name == name })]
}

// moment writes the row of a moment.
func (x *explorer) moment(out *tabwriter.Writer, w *world, t task, last string) {
	killed := w.clone()
	x.restart(killed)
	started, again := killed.clone(), killed.clone()
	var rounds []string
	for due := x.due(started, &started.owners[0]); due >= 0 && started.owners[0].disk != nil; due = x.due(started, &started.owners[0]) {
		started.now = max(started.now, due)
		if steps := x.finish(started, 0, task{background: true}); len(steps) > 0 {
			rounds = append(rounds, strings.Join(steps, ", "))
		} else if len(rounds) == 0 {
			rounds = append(rounds, "wait")
		}
	}
	x.finish(again, 0, t)
	fmt.Fprintf(out, "  %s\t%s\t%s\t%s\t%s\t%s\n", last, durableText(killed), storeText(killed), cmp.Or(strings.Join(rounds, "; later "), "-"), endText(started), endText(again))
}

func durableText(w *world) string {
	d := w.owners[0].disk
	if d == nil {
		return "-"
	}
	text := string(d.State)
	if d.Confirming {
		text += ", confirming"
	}
	return strings.TrimSpace(text + " " + strings.Trim(fmt.Sprint(d.Addrs()), "[]"))
}

func storeText(w *world) string {
	if len(w.leases) == 0 {
		return "-"
	}
	if _, generation, later := strings.Cut(w.leases[0].id, "-g"); later {
		return fmt.Sprintf("%s, g%s", w.leases[0].ip, generation)
	}
	return fmt.Sprint(w.leases[0].ip)
}

// endText is how the work ended: an error, or what is on disk, which agrees with the store.
func endText(w *world) string {
	o := w.owners[0]
	switch {
	case o.result != nil:
		known, _ := errors.AsType[*attachment.Error](o.result)
		if known == nil {
			known = &attachment.Error{Kind: attachment.Failed}
		}
		return "error: " + string(known.Kind)
	case o.disk == nil && len(w.leases) == 0:
		return "nothing"
	}
	if store := storeText(w); strings.Contains(store, "g") {
		return string(o.disk.State) + " " + store
	}
	return durableText(w)
}

// The table stands between these lines of the package's documentation.
const (
	momentsBegin = "draws it (make explore DRAW=-draw):\n//\n"
	momentsEnd   = "//\n// # Fields\n"
)

// checkMoments compares the table with that in a Go comment, or writes it there.
func checkMoments(file string, write bool) error {
	var comment strings.Builder
	for line := range strings.Lines(moments()) {
		comment.WriteString(strings.TrimRight("//\t"+line, "\t\n") + "\n")
	}
	return checkDrawn(file, momentsBegin, momentsEnd, strings.TrimSuffix(comment.String(), "//\n"), write)
}

// checkDrawn compares what stands between two lines of a file, or writes it there.
func checkDrawn(file, begin, end, want string, write bool) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, begins := strings.Cut(string(text), begin)
	_, after, ends := strings.Cut(rest, end)
	drawn := before + begin + want + end + after
	switch {
	case !begins || !ends:
		return fmt.Errorf("%s has no place for what is drawn; expected the lines %q and %q", file, begin, end)
	case drawn == string(text):
		return nil
	case !write:
		return fmt.Errorf("%s differs from the exploration; run 'make explore DRAW=-draw'", file)
	}
	return os.WriteFile(file, []byte(drawn), 0o600)
}
