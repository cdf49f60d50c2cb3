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

func TestARecordIsDurableBeforeThePluginIsToldAndBeforeTheAnswerIsSent(t *testing.T) {
	t.Parallel()
	newTally(t, fsyncOrder).watch(t)
	n := nodeWith(t)
	trace := filepath.Join(n.Dir, "trace")
	// -D makes the sidecar our child and strace a process beside it.
	n.Wrapper = traceDisk(t, trace)
	s := n.Launch(t, "--enable-ipv6=false")
	s.WaitReady(t)
	ip := s.Allocate(t, harness.Request{Owner: "router"}).Address.IPv4
	s.Release(t, ip)
	s.Stop(t)

	record := filepath.Join(n.StateDir, "attachments", idOf(t, n, "router")+".json")
	got, d := moments(harness.ReadTrace(t, trace, s.PID()), record)
	want := []moment{
		{"DEL starts", none}, // and stands by
		{"ADD starts", none},
		{told, "adding"},
		{"DEL ended", "adding"},
		{told, "adding"},
		{"ADD ended", "adding"},
		{"answer 201", "held"},
		{"DEL starts", "held"},
		{told, "releasing"},
		{"DEL ended", "releasing"},
		{"answer 200", none},
	}
	if !slices.Equal(got, want) {
		t.Errorf("a power loss would leave this at each moment:\n%v\nwant:\n%v", got, want)
	}
	if len(d.wrong) > 0 {
		t.Error(strings.Join(d.wrong, "\n"))
	}
}

// traceDisk returns the command under which what changes the disk, and answers, are
// traced into a file. -D makes the sidecar our child and strace a process beside it.
func traceDisk(t *testing.T, trace string) []string {
	t.Helper()
	return []string{
		wantStrace(t), "-D", "-f", "-v", "-y", "-s", "65536", "-e", "signal=none", "-o", trace,
		"-e", "trace=openat,?mkdir,mkdirat,write,pwrite64,fsync,fdatasync,?rename,?renameat,renameat2,unlinkat,execve",
	}
}

func TestAFileThatMayBeARecordOnDiskIsNeverWrittenAgain(t *testing.T) {
	t.Parallel()
	count := newTally(t, fsyncOrder)
	for name, inject := range map[string][]string{
		"nothing fails":                   nil,
		"fsyncs of files and folder fail": {"-e", "inject=fsync,fdatasync:error=EIO:when=9+7"},
		"writes fail":                     {"-e", "inject=pwrite64:error=ENOSPC:when=5+4"},
		"names cannot be changed":         {"-e", "inject=renameat,renameat2:error=EIO:when=6+5"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			count.watch(t)
			n := nodeWith(t)
			trace := filepath.Join(n.Dir, "trace")
			n.Wrapper = append(traceDisk(t, trace), inject...)
			s := n.Launch(t)
			s.WaitServing(t)
			c := newCrowd(s.Client, seed(t), 12, 150)
			c.setServing(true)
			c.run(6)
			s.Stop(t)

			d := newDisk()
			for _, step := range strace.Parse(harness.ReadTrace(t, trace, s.PID())) {
				d.feed(step)
			}
			if len(d.wrong) > 0 {
				t.Error(strings.Join(d.wrong, "\n"))
			}
			if d.made < 10 {
				t.Errorf("only %d records were written, so that little was tried", d.made)
			}
		})
	}
}

// wantStrace returns strace's path, if it can trace here.
func wantStrace(t *testing.T) string {
	t.Helper()
	if err := strace.Try(t.Context()); err != nil {
		cannot(t, "system calls cannot be looked at: %v", err)
	}
	path, err := exec.LookPath("strace")
	must(t, err)
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

// moment is something that a power loss must not overtake, and the state of the
// record that it would leave then.
type moment struct{ what, left string }

var (
	verbOf = regexp.MustCompile(`"CNI_COMMAND=(ADD|DEL)"`)
	// What plugins print themselves they write to descriptor 1.
	toldBy   = regexp.MustCompile(`^([3-9]|\d\d+)<pipe:\[\d+\]>, "\{`)
	answerOf = regexp.MustCompile(`^\d+<[^>]*>, "HTTP/1\.1 (\d+) `)
)

// told is the moment at which a plugin that stands by may read its configuration.
const told = "told"

// moments returns the start and end of each ADD and DEL, when they are told their
// configuration if they stood by, and each answer from the first of an allocation on.
// Calls begin before they end: what has just begun may have happened. It also returns
// the disk at the end.
func moments(trace, record string) (all []moment, d *disk) {
	d = newDisk()
	verbs := map[int]string{}
	for _, s := range strace.Parse(trace) {
		d.feed(s)
		what := ""
		switch {
		case s.Call == strace.Exited && verbs[s.PID] != "":
			what = verbs[s.PID] + " ended"
		case s.Ended:
		case s.Call == "execve" && verbOf.MatchString(s.Args):
			verbs[s.PID] = verbOf.FindStringSubmatch(s.Args)[1]
			what = verbs[s.PID] + " starts"
		case s.Call == "write" && toldBy.MatchString(s.Args):
			what = told
		case s.Call == "write" && answerOf.MatchString(s.Args):
			what = "answer " + answerOf.FindStringSubmatch(s.Args)[1]
		}
		// Before the first call every answer is one about health.
		if what != "" && (len(all) > 0 || what != "answer 200") {
			all = append(all, moment{what, d.left(record)})
		}
	}
	return all, d
}

func TestATraceShowsWhatAPowerLossWouldLeave(t *testing.T) {
	const (
		temp   = `7 openat(3</s/attachments>, ".a.json1", O_RDWR|O_CREAT|O_EXCL, 0600) = 5</s/attachments/.a.json1>`
		put    = `7 pwrite64(5</s/attachments/.a.json1>, "{\"record\":{\"state\":\"adding\"}}", 29, 0) = 29`
		sync   = `7 fsync(5</s/attachments/.a.json1>) = 0`
		rename = `7 renameat(3</s/attachments>, ".a.json1", 3</s/attachments>, "a.json") = 0`
		folder = `7 fsync(6</s/attachments>) = 0`
		add    = `9 execve("/bin/host-local", ["host-local"], ["CNI_COMMAND=ADD"]) = 0`
		config = `7 write(9<pipe:[12]>, "{\"cniVersion\":\"1.1.0\"}", 22) = 22`
		answer = `7 write(8<socket:[1]>, "HTTP/1.1 201 Created\r\n", 22) = 22`
		unlink = `7 unlinkat(3</s/attachments>, "a.json", 0) = 0`
	)
	tests := map[string]struct {
		trace []string
		want  []moment
	}{
		"the right order":                         {[]string{temp, put, sync, rename, folder, add}, []moment{{"ADD starts", "adding"}}},
		"no fsync of the file":                    {[]string{temp, put, rename, folder, add}, []moment{{"ADD starts", torn}}},
		"fsync before the write":                  {[]string{temp, sync, put, rename, folder, add}, []moment{{"ADD starts", torn}}},
		"fsync that failed":                       {[]string{temp, put, strings.Replace(sync, "= 0", "= -1 EIO (Input/output error)", 1), rename, folder, add}, []moment{{"ADD starts", torn}}},
		"no fsync of the folder":                  {[]string{temp, put, sync, rename, add}, []moment{{"ADD starts", none}}},
		"fsync of the folder before rename":       {[]string{temp, put, sync, folder, rename, add}, []moment{{"ADD starts", none}}},
		"the plugin before the record":            {[]string{add, temp, put, sync, rename, folder}, []moment{{"ADD starts", none}}},
		"a plugin that stands by meanwhile":       {[]string{add, temp, put, sync, rename, folder, config}, []moment{{"ADD starts", none}, {told, "adding"}}},
		"what a plugin prints itself":             {[]string{add, strings.Replace(config, "9<", "1<", 1)}, []moment{{"ADD starts", none}}},
		"a plugin that is told too early":         {[]string{add, temp, put, sync, rename, config, folder}, []moment{{"ADD starts", none}, {told, none}}},
		"the answer before the folder":            {[]string{temp, put, sync, rename, answer, folder}, []moment{{"answer 201", none}}},
		"a removal without fsync of the folder":   {[]string{temp, put, sync, rename, folder, unlink, answer}, []moment{{"answer 201", "adding"}}},
		"a removal with it":                       {[]string{temp, put, sync, rename, folder, unlink, folder, answer}, []moment{{"answer 201", none}}},
		"a folder whose own name is not synced":   {[]string{`7 mkdirat(2</s>, "attachments", 0700) = 0`, temp, put, sync, rename, folder, add}, []moment{{"ADD starts", none}}},
		"a folder whose own name is":              {[]string{`7 mkdirat(2</s>, "attachments", 0700) = 0`, `7 fsync(2</s>) = 0`, temp, put, sync, rename, folder, add}, []moment{{"ADD starts", "adding"}}},
		"an fsync of the folder that still waits": {[]string{temp, put, sync, rename, `7 fsync(6</s/attachments> <unfinished ...>`, add, `7 <... fsync resumed>) = 0`}, []moment{{"ADD starts", none}}},
		"an fsync of the folder that began before rename": {
			[]string{temp, put, sync, `8 fsync(6</s/attachments> <unfinished ...>`, rename, `8 <... fsync resumed>) = 0`, add},
			[]moment{{"ADD starts", none}},
		},
		"a plugin and its end": {[]string{temp, put, sync, rename, folder, add, `9 +++ exited with 0 +++`, answer}, []moment{{"ADD starts", "adding"}, {"ADD ended", "adding"}, {"answer 201", "adding"}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got, _ := moments(strings.Join(tt.trace, "\n"), "/s/attachments/a.json"); !slices.Equal(got, tt.want) {
				t.Errorf("got %v; want %v", got, tt.want)
			}
		})
	}
}

func TestATraceShowsAFileThatIsWrittenAgain(t *testing.T) {
	const (
		made   = `7 openat(3</s/attachments>, ".new.json1", O_WRONLY|O_CREAT|O_EXCL, 0600) = 5</s/attachments/.new.json1>`
		put    = `7 pwrite64(5</s/attachments/.new.json1>, "{\"record\":{\"state\":\"adding\"}}", 29, 0) = 29`
		sync   = `7 fsync(5</s/attachments/.new.json1>) = 0`
		rename = `7 renameat(3</s/attachments>, ".new.json1", 3</s/attachments>, "a.json") = 0`
		folder = `7 fsync(3</s/attachments>) = 0`
		gone   = `7 unlinkat(3</s/attachments>, ".new.json1", 0) = 0`
	)
	failed := func(call string) string { return strings.Replace(call, "= 0", "= -1 EIO (Input/output error)", 1) }
	first := []string{made, put, sync, rename, folder}
	tests := map[string]struct {
		trace []string
		want  string // is in what is wrong; empty for nothing
	}{
		"a new file":                      {first, ""},
		"another one of the same name":    {slices.Concat(first, first), ""},
		"one after the first was removed": {slices.Concat([]string{made, put, failed(sync), gone}, first), ""},
		"a file that is written in parts": {[]string{made, put, put, sync, rename}, ""},
		"a file after its fsync":          {[]string{made, put, sync, put}, "written again"},
		"the record itself":               {slices.Concat(first, []string{strings.ReplaceAll(put, ".new.json1", "a.json")}), "written again"},
		"a record that was never synced":  {[]string{made, put, rename, strings.ReplaceAll(put, ".new.json1", "a.json")}, "written again"},
		"a file whose fsync has failed":   {[]string{made, put, failed(sync), put}, "has failed with it before"},
		"a record of such a file":         {[]string{made, put, failed(sync), sync, rename}, "something has failed"},
		"a record of a write that failed": {[]string{made, strings.Replace(put, "= 29", "= -1 ENOSPC (No space left on device)", 1), sync, rename}, "something has failed"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, d := moments(strings.Join(tt.trace, "\n"), "/s/attachments/a.json")
			if got := strings.Join(d.wrong, "\n"); (tt.want == "") != (got == "") || !strings.Contains(got, tt.want) {
				t.Errorf("wrong is %q; want %q", got, tt.want)
			}
		})
	}
}
