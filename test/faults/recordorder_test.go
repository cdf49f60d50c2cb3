package faults

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

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
	s := n.Launch(t, "--enable-ipv6=false")
	s.WaitReady(t)
	ip := s.AllocateFor(t, "router")[0]
	s.Release(t, ip)
	s.Stop(t)

	record := recordOf(n, "router")
	got, d := traceEvents(harness.ReadTrace(t, trace, s.PID()), record)
	want := []traceEvent{
		{"DEL starts", none}, // prestarted, as ADD
		{"ADD starts", none},
		{configSent, "adding"},
		{"DEL ended", "adding"},
		{configSent, "adding"},
		{"ADD ended", "adding"},
		{"response 201", "held"},
		{"DEL starts", "held"},
		{configSent, "releasing"},
		{"DEL ended", "releasing"},
		{"response 200", "releasing"}, // a start releases it again
	}
	if len(got) > 0 && got[len(got)-1] == (traceEvent{"response 200", none}) {
		want[len(want)-1].durable = none // a slow response
	}
	if !slices.Equal(got, want) {
		t.Errorf("durable at each event:\n%v\nwant:\n%v", got, want)
	}
	if after := d.afterPowerLoss(record); after != none {
		t.Errorf("after the stop a power loss leaves the state %q; want none", after)
	}
	if len(d.violations) > 0 {
		t.Error(strings.Join(d.violations, "\n"))
	}
}

// traceDisk returns a wrapper that traces the system calls that change the disk or write responses.
// With -D the sidecar is the child of the test, and strace a separate process.
func traceDisk(t *testing.T, trace string) []string {
	t.Helper()
	return []string{
		wantStrace(t), "-D", "-f", "-v", "-y", "-s", "65536", "-e", "signal=none", "-o", trace,
		"-e", "trace=openat,?mkdir,mkdirat,write,pwrite64,fsync,fdatasync,?rename,?renameat,renameat2,unlinkat,execve",
	}
}

//evidence:design/reliability Order on disk
func TestRecordNeverTorn(t *testing.T) {
	eachCase(t, fsyncOrder, map[string][]string{
		"no failure":   nil,
		"fsync fails":  {"-e", "inject=fsync,fdatasync:error=EIO:when=9+7"},
		"write fails":  {"-e", "inject=pwrite64:error=ENOSPC:when=5+4"},
		"rename fails": {"-e", "inject=renameat,renameat2:error=EIO:when=6+5"},
	}, func(t *testing.T, _ *stats, inject []string) {
		n := nodeWith(t)
		n.Program = harness.Failpoints(t) // without the race detector, which strace would slow down
		trace := filepath.Join(n.Dir, "trace")
		n.Wrapper = append(traceDisk(t, trace), inject...)
		s := n.Launch(t)
		s.WaitServing(t)
		c := newClients(s.Client, seed(t), 12, 150, 0)
		c.run(6)
		s.Stop(t)

		_, d := traceEvents(harness.ReadTrace(t, trace, s.PID()), "/none")
		if len(d.violations) > 0 {
			t.Error(strings.Join(d.violations, "\n"))
		}
		if d.recordCount < 10 {
			t.Errorf("only %d records were written; the test proves little", d.recordCount)
		}
	})
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
	verbArg = regexp.MustCompile(`"CNI_COMMAND=(ADD|DEL)"`)
	// Plugins write their output to descriptor 1.
	configWrite   = regexp.MustCompile(`^([3-9]|\d\d+)<pipe:\[\d+\]>, "\{`)
	responseWrite = regexp.MustCompile(`^\d+<[^>]*>, "HTTP/1\.1 (\d+) `)
)

// configSent is the event at which a prestarted plugin may read its configuration.
const configSent = "configuration sent"

// traceEvents returns the start and end of each ADD and DEL, the writes of configurations to prestarted
// plugins, and the responses after the first of these. A call counts from its start, because it
// may have taken effect. It also returns the model of the disk at the end.
func traceEvents(trace, record string) (all []traceEvent, d *diskModel) {
	d = &diskModel{
		visible: map[string]*modelFile{}, durable: map[string]*modelFile{},
		changed: map[string]map[string]int{}, syncStart: map[int]int{},
	}
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
		case s.Call == "write" && configWrite.MatchString(s.Args):
			event = configSent
		case s.Call == "write" && responseWrite.MatchString(s.Args):
			event = "response " + responseWrite.FindStringSubmatch(s.Args)[1]
		}
		// Before the first call every response is one of health.
		if event != "" && (len(all) > 0 || event != "response 200") {
			all = append(all, traceEvent{event, d.afterPowerLoss(record)})
		}
	}
	return all, d
}

// A trace is a list of steps, of which "record" writes a record; "!" ends a step that fails.
func TestDiskModel(t *testing.T) {
	steps := map[string]string{
		"open":      `7 openat(3</s/attachments>, ".a.json1", O_RDWR|O_CREAT|O_EXCL, 0600) = 5</s/attachments/.a.json1>`,
		"write":     `7 pwrite64(5</s/attachments/.a.json1>, "{\"record\":{\"state\":\"adding\"}}", 29, 0) = 29`,
		"fsync":     `7 fsync(5</s/attachments/.a.json1>) = 0`,
		"rename":    `7 renameat(3</s/attachments>, ".a.json1", 3</s/attachments>, "a.json") = 0`,
		"fsync-dir": `7 fsync(6</s/attachments>) = 0`,
		"begin-dir": `8 fsync(6</s/attachments> <unfinished ...>`,
		"end-dir":   `8 <... fsync resumed>) = 0`,
		"rewrite":   `7 pwrite64(5</s/attachments/a.json>, "{}", 2, 0) = 2`,
		"other":     `7 pwrite64(5</s/attachments/a.json>, "{\"record\":{\"state\":\"held\"}}", 29, 4096) = 29`,
		"both":      `7 pwrite64(5</s/attachments/.a.json1>, "{\"record\":{\"state\":\"adding\"}}` + strings.Repeat(" ", 4066) + `\n` + strings.Repeat(" ", 4096) + `", 8192, 0) = 8192`,
		"datasync":  `7 fdatasync(5</s/attachments/a.json>) = 0`,
		"discard":   `7 unlinkat(3</s/attachments>, ".a.json1", 0) = 0`,
		"remove":    `7 unlinkat(3</s/attachments>, "a.json", 0) = 0`,
		"mkdir":     `7 mkdirat(2</s>, "attachments", 0700) = 0`,
		"fsync-up":  `7 fsync(2</s>) = 0`,
		"ADD":       `9 execve("/bin/host-local", ["host-local"], ["CNI_COMMAND=ADD"]) = 0`,
		"output":    `9 write(1<pipe:[12]>, "{\"cniVersion\":\"1.1.0\"}", 22) = 22`,
		"exit":      `9 +++ exited with 0 +++`,
		"config":    `7 write(9<pipe:[12]>, "{\"cniVersion\":\"1.1.0\"}", 22) = 22`,
		"respond":   `7 write(8<socket:[1]>, "HTTP/1.1 201 Created\r\n", 22) = 22`,
	}
	for _, c := range []struct{ trace, events, violation string }{
		{"record ADD", "{ADD starts adding}", ""},
		{"open write rename fsync-dir ADD", "{ADD starts torn}", ""},
		{"open fsync write rename fsync-dir ADD", "{ADD starts torn}", "written again"},
		{"open write fsync! rename fsync-dir ADD", "{ADD starts torn}", "of a file after a failed"},
		{"open write fsync rename ADD", "{ADD starts none}", ""},
		{"open write fsync fsync-dir rename ADD", "{ADD starts none}", ""},
		{"open write fsync rename begin-dir ADD end-dir", "{ADD starts none}", ""},
		{"open write fsync begin-dir rename end-dir ADD", "{ADD starts none}", ""},
		{"ADD record config", "{ADD starts none} {configuration sent adding}", ""},
		{"ADD open write fsync rename config fsync-dir", "{ADD starts none} {configuration sent none}", ""},
		{"ADD output", "{ADD starts none}", ""},
		{"record ADD exit respond", "{ADD starts adding} {ADD ended adding} {response 201 adding}", ""},
		{"open write fsync rename respond fsync-dir", "{response 201 none}", ""},
		{"record remove respond", "{response 201 adding}", ""},
		{"record remove fsync-dir respond", "{response 201 none}", ""},
		{"mkdir record ADD", "{ADD starts none}", ""},
		{"mkdir fsync-up record ADD", "{ADD starts adding}", ""},
		{"record record", "", ""},
		{"open write fsync! discard record", "", ""},
		{"record other ADD datasync ADD", "{ADD starts adding} {ADD starts held}", ""},
		{"open both fsync rename fsync-dir other ADD datasync ADD", "{ADD starts adding} {ADD starts held}", ""},
		{"record other datasync rewrite ADD", "{ADD starts held}", ""},
		{"record other rewrite", "", "written again"},
		{"record other datasync other", "", "written again"},
		{"record other datasync! rewrite", "", "written after a failed"},
		{"open write rename other", "", "written again"},
		{"open write write fsync rename", "", ""},
		{"open write fsync write", "", "written again"},
		{"record rewrite", "", "written again"},
		{"open write rename rewrite", "", "written again"},
		{"open write fsync! write", "", "written after a failed"},
		{"open write fsync! fsync rename", "", "of a file after a failed"},
		{"open write! fsync rename", "", "of a file after a failed"},
	} {
		var trace []string
		for step := range strings.FieldsSeq(strings.ReplaceAll(c.trace, "record", "open write fsync rename fsync-dir")) {
			name, failed := strings.CutSuffix(step, "!")
			line := steps[name]
			if failed {
				line = line[:strings.LastIndex(line, " = ")] + " = -1 EIO (Input/output error)"
			}
			trace = append(trace, line)
		}
		events, d := traceEvents(strings.Join(trace, "\n"), "/s/attachments/a.json")
		if got := strings.Trim(fmt.Sprint(events), "[]"); got != c.events {
			t.Errorf("%s: got %s; want %s", c.trace, got, c.events)
		}
		if got := strings.Join(d.violations, "\n"); (c.violation == "") != (got == "") || !strings.Contains(got, c.violation) {
			t.Errorf("%s: got the violations %q; want %q", c.trace, got, c.violation)
		}
	}
}
