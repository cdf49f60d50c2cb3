package faults

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/journal"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
	"github.com/delegated-ipam/delegated-ipam/test/strace"
)

//evidence:design/reliability Order on disk
func TestRecordDurableBeforeCall(t *testing.T) {
	oneCase(t, fsyncOrder)
	n := nodeWith(t)
	trace := filepath.Join(n.Dir, "trace")
	n.Wrapper = traceDisk(t, trace)
	s := n.Launch(t, "--enable-ipv6=false", "--host-local=program")
	s.WaitReady(t)
	ip := s.AllocateFor(t, "router")[0]
	s.Release(t, ip)
	s.Stop(t)

	var got []traceEvent
	d := replayTrace(harness.ReadTrace(t, trace, s.PID()), func(d *diskModel, event string) {
		// Before the first call every response is one of health.
		if event != "" && (len(got) > 0 || event != "response 200") {
			got = append(got, traceEvent{event, d.stateOf(t, n.StateDir, "router")})
		}
	})
	want := []traceEvent{
		{"DEL starts", "adding"},
		{"DEL ended", "adding"},
		{"ADD starts", "adding"},
		{"ADD ended", "adding"},
		{"response 201", "held"},
		{"DEL starts", "releasing"},
		{"DEL ended", "releasing"},
		{"response 200", "releasing"}, // the removal follows
	}
	if !slices.Equal(got, want) {
		t.Errorf("durable at each event:\n%v\nwant:\n%v", got, want)
	}
	if after := d.stateOf(t, n.StateDir, "router"); after != none {
		t.Errorf("after the stop a power loss leaves the state %q; want none", after)
	}
}

// The model knows only what this process has written: of a journal that was there before nothing is durable, as after a
// kill before a sync and after a block error. A response for a held address needs no change.
//
//evidence:design/reliability killed before the sync of a change, and the power fails after the restart
func TestStartWritesJournalAnew(t *testing.T) {
	st := oneCase(t, fsyncOrder)
	n := nodeWith(t)
	s := n.Start(t)
	held := s.AllocateFor(t, "router")
	s.Kill(t)
	st.kills.Add(1)
	trace := filepath.Join(n.Dir, "trace")
	n.Wrapper = traceDisk(t, trace)
	s = n.Launch(t, "--verify-interval=1h")
	s.WaitServing(t)
	wantHeld(t, s, "router", held)
	s.Stop(t)

	responses := 0
	replayTrace(harness.ReadTrace(t, trace, s.PID()), func(d *diskModel, event string) {
		if !strings.HasPrefix(event, "response") {
			return
		}
		responses++
		if state := d.stateOf(t, n.StateDir, "router"); state != "held" {
			t.Errorf("at %q a power loss leaves the state %q; want held", event, state)
		}
	})
	if responses == 0 {
		t.Error("the trace has no response")
	}
}

// traceDisk returns a wrapper that traces the system calls that change the disk or write responses.
// With -D the daemon is the child of the test, and strace a separate process.
func traceDisk(t *testing.T, trace string) []string {
	t.Helper()
	return []string{
		wantStrace(t), "-D", "-f", "-v", "-y", "-x", "-s", "1048576", "-e", "signal=none", "-o", trace,
		"-e", "trace=openat,?mkdir,mkdirat,write,pwrite64,ftruncate,fsync,fdatasync,?rename,?renameat,renameat2,unlinkat,execve",
	}
}

// A power loss at any moment leaves the journal as it was before or after the transaction in progress, even if only a
// part of that is on the disk, and also where the disk fails.
//
//evidence:design/reliability Order on disk
func TestRecordNeverTorn(t *testing.T) {
	eachCase(t, fsyncOrder, map[string][]string{
		"no failure":   nil,
		"fsync fails":  {"-e", "inject=fsync,fdatasync:error=EIO:when=19+17"},
		"write fails":  {"-e", "inject=pwrite64:error=ENOSPC:when=25+14"},
		"rename fails": {"-e", "inject=renameat,renameat2:error=EIO:when=2+5"},
	}, func(t *testing.T, _ *stats, inject []string) {
		n := nodeWith(t)
		n.Program = harness.Failpoints(t) // without the race detector, which strace would slow down
		trace := filepath.Join(n.Dir, "trace")
		n.Wrapper = append(traceDisk(t, trace), inject...)
		s := n.Launch(t)
		s.WaitServing(t)
		c := newClients(s.Client, seed(t), 12, 60, 0)
		c.run(6)
		s.Stop(t)

		dice := rand.New(rand.NewPCG(seed(t), 0))
		moments, losses := 0, 0
		replayTrace(harness.ReadTrace(t, trace, s.PID()), func(d *diskModel, _ string) {
			moments++
			f := d.visible[filepath.Join(n.StateDir, "journal.db")]
			if f == nil || len(f.pending) == 0 || dice.IntN(4) > 0 || losses == maxLosses {
				return
			}
			losses++
			before, err := d.journal(t, n.StateDir, nothingElse)
			if err != nil {
				t.Fatalf("at moment %d the disk has a damaged journal: %v", moments, err)
			}
			after, err := d.journal(t, n.StateDir, func() bool { return true })
			if err != nil {
				t.Fatalf("at moment %d processes see a damaged journal: %v", moments, err)
			}
			got, err := d.journal(t, n.StateDir, lose(dice))
			if text := describe(got); err != nil || text != describe(before) && text != describe(after) {
				t.Fatalf("at moment %d a power loss leaves %s, %v; want %s or %s", moments, text, err, describe(before), describe(after))
			}
		})
		if losses < 50 {
			t.Errorf("only %d power losses; the test proves little", losses)
		}
	})
}

// maxLosses bounds the power losses of one trace.
const maxLosses = 400

func describe(all journal.Loaded) (text string) {
	for _, r := range all.Records {
		text += fmt.Sprintf("%s %s %d %v; ", r.Owner, r.State, len(r.Invocations), r.Claims)
	}
	return text + fmt.Sprint(all.Problems)
}

// wantStrace returns the path of strace.
func wantStrace(t *testing.T) string {
	t.Helper()
	if err := strace.Try(t.Context()); err != nil {
		harness.Skipf(t, "system calls cannot be traced: %v", err)
	}
	path, err := exec.LookPath("strace")
	check.Must(t, err)
	return path
}

// traceEvent is an event in a trace, and the state of the record after a power loss at that time.
type traceEvent struct{ event, durable string }

var (
	verbArg       = regexp.MustCompile(`"CNI_COMMAND=(ADD|DEL)"`)
	responseWrite = regexp.MustCompile(`^\d+<[^>]*>, "HTTP/1\.1 (\d+) `)
)

// replayTrace calls each after every step of a trace with the disk at that time and an event, or none: the start and
// end of an ADD or DEL, and a response. A call counts from its start, because it may have taken effect.
func replayTrace(trace string, each func(d *diskModel, event string)) *diskModel {
	d := newDiskModel()
	verbs := map[int]string{}
	for _, s := range strace.Parse(trace) {
		d.apply(s)
		event := ""
		switch {
		case s.Call == strace.Exited && verbs[s.PID] != "":
			event = verbs[s.PID] + " ended"
		case s.Ended:
		case s.Call == "execve" && verbArg.MatchString(s.Args):
			verbs[s.PID] = verbArg.FindStringSubmatch(s.Args)[1]
			event = verbs[s.PID] + " starts"
		case s.Call == "write" && responseWrite.MatchString(s.Args):
			event = "response " + responseWrite.FindStringSubmatch(s.Args)[1]
		}
		each(d, event)
	}
	return d
}
