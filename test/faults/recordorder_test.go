package faults

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
	"github.com/delegated-ipam/delegated-ipam/test/strace"
)

//evidence:design/reliability Order on disk
func TestRecordDurableBeforeCall(t *testing.T) {
	t.Parallel()
	newStats(t, fsyncOrder).countCase(t)
	n := nodeWith(t)
	trace := filepath.Join(n.Dir, "trace")
	n.Wrapper = traceDisk(t, trace)
	s := n.Launch(t, "--enable-ipv6=false")
	s.WaitReady(t)
	ip := s.AllocateFor(t, "router")[0]
	s.Release(t, ip)
	s.Stop(t)

	record := filepath.Join(n.StateDir, "attachments", idOf(t, n, "router")+".json")
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
func TestRecordFileWrittenOnce(t *testing.T) {
	t.Parallel()
	st := newStats(t, fsyncOrder)
	for name, inject := range map[string][]string{
		"no failure":   nil,
		"fsync fails":  {"-e", "inject=fsync,fdatasync:error=EIO:when=9+7"},
		"write fails":  {"-e", "inject=pwrite64:error=ENOSPC:when=5+4"},
		"rename fails": {"-e", "inject=renameat,renameat2:error=EIO:when=6+5"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st.countCase(t)
			n := nodeWith(t)
			n.Program = harness.Failpoints(t) // without the race detector, which strace would slow down
			trace := filepath.Join(n.Dir, "trace")
			n.Wrapper = append(traceDisk(t, trace), inject...)
			s := n.Launch(t)
			s.WaitServing(t)
			c := newClients(s.Client, seed(t), 12, 150)
			c.setServing(true)
			c.run(6)
			s.Stop(t)

			d := newDiskModel()
			for _, step := range strace.Parse(harness.ReadTrace(t, trace, s.PID())) {
				d.apply(step)
			}
			if len(d.violations) > 0 {
				t.Error(strings.Join(d.violations, "\n"))
			}
			if d.recordCount < 10 {
				t.Errorf("only %d records were written; the test proves little", d.recordCount)
			}
		})
	}
}

// wantStrace returns the path of strace.
func wantStrace(t *testing.T) string {
	t.Helper()
	if err := strace.Try(t.Context()); err != nil {
		harness.Skipf(t, "system calls cannot be traced: %v", err)
	}
	path, err := exec.LookPath("strace")
	harness.Must(t, err)
	return path
}

// idOf returns the container ID of an owner.
func idOf(t *testing.T, n *harness.Node, owner string) string {
	t.Helper()
	o := n.Command(t, "id", owner, "--node-name="+n.Name, "--cni-network=pods")
	if o.ExitCode != 0 {
		t.Fatalf("id %s: %+v", owner, o)
	}
	return strings.TrimSpace(o.Stdout)
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
	d = newDiskModel()
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

func TestDiskModelPowerLoss(t *testing.T) {
	const (
		temp      = `7 openat(3</s/attachments>, ".a.json1", O_RDWR|O_CREAT|O_EXCL, 0600) = 5</s/attachments/.a.json1>`
		put       = `7 pwrite64(5</s/attachments/.a.json1>, "{\"record\":{\"state\":\"adding\"}}", 29, 0) = 29`
		sync      = `7 fsync(5</s/attachments/.a.json1>) = 0`
		rename    = `7 renameat(3</s/attachments>, ".a.json1", 3</s/attachments>, "a.json") = 0`
		directory = `7 fsync(6</s/attachments>) = 0`
		add       = `9 execve("/bin/host-local", ["host-local"], ["CNI_COMMAND=ADD"]) = 0`
		config    = `7 write(9<pipe:[12]>, "{\"cniVersion\":\"1.1.0\"}", 22) = 22`
		answer    = `7 write(8<socket:[1]>, "HTTP/1.1 201 Created\r\n", 22) = 22`
		unlink    = `7 unlinkat(3</s/attachments>, "a.json", 0) = 0`
	)
	tests := map[string]struct {
		trace []string
		want  []traceEvent
	}{
		"correct order":                             {[]string{temp, put, sync, rename, directory, add}, []traceEvent{{"ADD starts", "adding"}}},
		"no fsync of the file":                      {[]string{temp, put, rename, directory, add}, []traceEvent{{"ADD starts", torn}}},
		"fsync before the write":                    {[]string{temp, sync, put, rename, directory, add}, []traceEvent{{"ADD starts", torn}}},
		"failed fsync of the file":                  {[]string{temp, put, strings.Replace(sync, "= 0", "= -1 EIO (Input/output error)", 1), rename, directory, add}, []traceEvent{{"ADD starts", torn}}},
		"no fsync of the directory":                 {[]string{temp, put, sync, rename, add}, []traceEvent{{"ADD starts", none}}},
		"fsync of the directory before rename":      {[]string{temp, put, sync, directory, rename, add}, []traceEvent{{"ADD starts", none}}},
		"plugin before the record":                  {[]string{add, temp, put, sync, rename, directory}, []traceEvent{{"ADD starts", none}}},
		"prestarted plugin":                         {[]string{add, temp, put, sync, rename, directory, config}, []traceEvent{{"ADD starts", none}, {configSent, "adding"}}},
		"output of a plugin":                        {[]string{add, strings.Replace(config, "9<", "1<", 1)}, []traceEvent{{"ADD starts", none}}},
		"configuration sent too early":              {[]string{add, temp, put, sync, rename, config, directory}, []traceEvent{{"ADD starts", none}, {configSent, none}}},
		"response before fsync of the directory":    {[]string{temp, put, sync, rename, answer, directory}, []traceEvent{{"response 201", none}}},
		"removal without fsync of the directory":    {[]string{temp, put, sync, rename, directory, unlink, answer}, []traceEvent{{"response 201", "adding"}}},
		"removal with fsync of the directory":       {[]string{temp, put, sync, rename, directory, unlink, directory, answer}, []traceEvent{{"response 201", none}}},
		"new directory without fsync of its parent": {[]string{`7 mkdirat(2</s>, "attachments", 0700) = 0`, temp, put, sync, rename, directory, add}, []traceEvent{{"ADD starts", none}}},
		"new directory with fsync of its parent":    {[]string{`7 mkdirat(2</s>, "attachments", 0700) = 0`, `7 fsync(2</s>) = 0`, temp, put, sync, rename, directory, add}, []traceEvent{{"ADD starts", "adding"}}},
		"unfinished fsync of the directory":         {[]string{temp, put, sync, rename, `7 fsync(6</s/attachments> <unfinished ...>`, add, `7 <... fsync resumed>) = 0`}, []traceEvent{{"ADD starts", none}}},
		"fsync of the directory starts before rename": {
			[]string{temp, put, sync, `8 fsync(6</s/attachments> <unfinished ...>`, rename, `8 <... fsync resumed>) = 0`, add},
			[]traceEvent{{"ADD starts", none}},
		},
		"end of a plugin": {[]string{temp, put, sync, rename, directory, add, `9 +++ exited with 0 +++`, answer}, []traceEvent{{"ADD starts", "adding"}, {"ADD ended", "adding"}, {"response 201", "adding"}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got, _ := traceEvents(strings.Join(tt.trace, "\n"), "/s/attachments/a.json"); !slices.Equal(got, tt.want) {
				t.Errorf("got %v; want %v", got, tt.want)
			}
		})
	}
}

func TestDiskModelRewrittenFile(t *testing.T) {
	const (
		made      = `7 openat(3</s/attachments>, ".new.json1", O_WRONLY|O_CREAT|O_EXCL, 0600) = 5</s/attachments/.new.json1>`
		put       = `7 pwrite64(5</s/attachments/.new.json1>, "{\"record\":{\"state\":\"adding\"}}", 29, 0) = 29`
		sync      = `7 fsync(5</s/attachments/.new.json1>) = 0`
		rename    = `7 renameat(3</s/attachments>, ".new.json1", 3</s/attachments>, "a.json") = 0`
		directory = `7 fsync(3</s/attachments>) = 0`
		gone      = `7 unlinkat(3</s/attachments>, ".new.json1", 0) = 0`
	)
	failed := func(call string) string { return strings.Replace(call, "= 0", "= -1 EIO (Input/output error)", 1) }
	first := []string{made, put, sync, rename, directory}
	tests := map[string]struct {
		trace []string
		want  string // part of the violation; empty for none
	}{
		"new file":                        {first, ""},
		"second file of the same name":    {slices.Concat(first, first), ""},
		"new file after removal":          {slices.Concat([]string{made, put, failed(sync), gone}, first), ""},
		"two writes before fsync":         {[]string{made, put, put, sync, rename}, ""},
		"write after fsync":               {[]string{made, put, sync, put}, "written again"},
		"write to the record":             {slices.Concat(first, []string{strings.ReplaceAll(put, ".new.json1", "a.json")}), "written again"},
		"write to a record without fsync": {[]string{made, put, rename, strings.ReplaceAll(put, ".new.json1", "a.json")}, "written again"},
		"write after failed fsync":        {[]string{made, put, failed(sync), put}, "written after a failed"},
		"record after failed fsync":       {[]string{made, put, failed(sync), sync, rename}, "of a file after a failed"},
		"record after failed write":       {[]string{made, strings.Replace(put, "= 29", "= -1 ENOSPC (No space left on device)", 1), sync, rename}, "of a file after a failed"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, d := traceEvents(strings.Join(tt.trace, "\n"), "/s/attachments/a.json")
			if got := strings.Join(d.violations, "\n"); (tt.want == "") != (got == "") || !strings.Contains(got, tt.want) {
				t.Errorf("got the violations %q; want %q", got, tt.want)
			}
		})
	}
}
