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

func TestARecordIsDurableBeforeThePluginStartsAndBeforeTheAnswerIsSent(t *testing.T) {
	t.Parallel()
	newTally(t, fsyncOrder).watch(t)
	n := nodeWith(t)
	trace := filepath.Join(n.Dir, "trace")
	// -D makes the sidecar our child and strace a process beside it.
	n.Under = []string{
		wantStrace(t), "-D", "-f", "-v", "-y", "-s", "65536", "-e", "signal=none", "-o", trace,
		"-e", "trace=openat,?mkdir,mkdirat,write,fsync,fdatasync,?rename,?renameat,renameat2,unlinkat,execve",
	}
	s := n.Launch(t, "--enable-ipv6=false")
	s.WaitReady(t)
	ip := s.Allocate(t, harness.Request{Owner: "router"}).Address.IPv4
	s.Release(t, ip)
	s.Stop(t)

	record := filepath.Join(n.StateDir, "attachments", idOf(t, n, "router")+".json")
	got := moments(harness.WholeTrace(t, trace, s.PID()), record)
	want := []moment{
		{"DEL begins", "adding"},
		{"DEL ended", "adding"},
		{"ADD begins", "adding"},
		{"ADD ended", "adding"},
		{"answer 201", "held"},
		{"DEL begins", "releasing"},
		{"DEL ended", "releasing"},
		{"answer 200", none},
	}
	if !slices.Equal(got, want) {
		t.Errorf("a power loss would leave this at each moment:\n%v\nwant:\n%v", got, want)
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
	if o.Code != 0 {
		t.Fatalf("id %s: %+v", owner, o)
	}
	return strings.TrimSpace(o.Stdout)
}

// moment is something that a power loss must not overtake, and the state of the
// record that it would leave then.
type moment struct{ what, left string }

var (
	verbOf   = regexp.MustCompile(`"CNI_COMMAND=(ADD|DEL)"`)
	answerOf = regexp.MustCompile(`^\d+<[^>]*>, "HTTP/1\.1 (\d+) `)
)

// moments returns the begin and end of each ADD and DEL and each answer from the
// first of an allocation on. Calls begin before they end: what has just begun
// may have happened.
func moments(trace, record string) []moment {
	d, verbs := newDisk(), map[int]string{}
	var all []moment
	for _, s := range strace.Parse(trace) {
		d.feed(s)
		what := ""
		switch {
		case s.Call == strace.Exited && verbs[s.PID] != "":
			what = verbs[s.PID] + " ended"
		case s.Ended:
		case s.Call == "execve" && verbOf.MatchString(s.Args):
			verbs[s.PID] = verbOf.FindStringSubmatch(s.Args)[1]
			what = verbs[s.PID] + " begins"
		case s.Call == "write" && answerOf.MatchString(s.Args):
			what = "answer " + answerOf.FindStringSubmatch(s.Args)[1]
		}
		// Before the first call every answer is one about health.
		if what != "" && (len(all) > 0 || what != "answer 200") {
			all = append(all, moment{what, d.left(record)})
		}
	}
	return all
}

func TestATraceShowsWhatAPowerLossWouldLeave(t *testing.T) {
	const (
		temp   = `7 openat(3</s/attachments>, ".a.json1", O_RDWR|O_CREAT|O_EXCL, 0600) = 5</s/attachments/.a.json1>`
		put    = `7 write(5</s/attachments/.a.json1>, "{\"record\":{\"state\":\"adding\"}}", 29) = 29`
		sync   = `7 fsync(5</s/attachments/.a.json1>) = 0`
		rename = `7 renameat(3</s/attachments>, ".a.json1", 3</s/attachments>, "a.json") = 0`
		folder = `7 fsync(6</s/attachments>) = 0`
		add    = `9 execve("/bin/host-local", ["host-local"], ["CNI_COMMAND=ADD"]) = 0`
		answer = `7 write(8<socket:[1]>, "HTTP/1.1 201 Created\r\n", 22) = 22`
		unlink = `7 unlinkat(3</s/attachments>, "a.json", 0) = 0`
	)
	tests := map[string]struct {
		trace []string
		want  []moment
	}{
		"the right order":                         {[]string{temp, put, sync, rename, folder, add}, []moment{{"ADD begins", "adding"}}},
		"no fsync of the file":                    {[]string{temp, put, rename, folder, add}, []moment{{"ADD begins", torn}}},
		"fsync before the write":                  {[]string{temp, sync, put, rename, folder, add}, []moment{{"ADD begins", torn}}},
		"fsync that failed":                       {[]string{temp, put, strings.Replace(sync, "= 0", "= -1 EIO (Input/output error)", 1), rename, folder, add}, []moment{{"ADD begins", torn}}},
		"no fsync of the folder":                  {[]string{temp, put, sync, rename, add}, []moment{{"ADD begins", none}}},
		"fsync of the folder before rename":       {[]string{temp, put, sync, folder, rename, add}, []moment{{"ADD begins", none}}},
		"the plugin before the record":            {[]string{add, temp, put, sync, rename, folder}, []moment{{"ADD begins", none}}},
		"the answer before the folder":            {[]string{temp, put, sync, rename, answer, folder}, []moment{{"answer 201", none}}},
		"a removal without fsync of the folder":   {[]string{temp, put, sync, rename, folder, unlink, answer}, []moment{{"answer 201", "adding"}}},
		"a removal with it":                       {[]string{temp, put, sync, rename, folder, unlink, folder, answer}, []moment{{"answer 201", none}}},
		"a folder whose own name is not synced":   {[]string{`7 mkdirat(2</s>, "attachments", 0700) = 0`, temp, put, sync, rename, folder, add}, []moment{{"ADD begins", none}}},
		"a folder whose own name is":              {[]string{`7 mkdirat(2</s>, "attachments", 0700) = 0`, `7 fsync(2</s>) = 0`, temp, put, sync, rename, folder, add}, []moment{{"ADD begins", "adding"}}},
		"an fsync of the folder that still waits": {[]string{temp, put, sync, rename, `7 fsync(6</s/attachments> <unfinished ...>`, add, `7 <... fsync resumed>) = 0`}, []moment{{"ADD begins", none}}},
		"an fsync of the folder that began before rename": {
			[]string{temp, put, sync, `8 fsync(6</s/attachments> <unfinished ...>`, rename, `8 <... fsync resumed>) = 0`, add},
			[]moment{{"ADD begins", none}},
		},
		"a plugin and its end": {[]string{temp, put, sync, rename, folder, add, `9 +++ exited with 0 +++`, answer}, []moment{{"ADD begins", "adding"}, {"ADD ended", "adding"}, {"answer 201", "adding"}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := moments(strings.Join(tt.trace, "\n"), "/s/attachments/a.json"); !slices.Equal(got, tt.want) {
				t.Errorf("got %v; want %v", got, tt.want)
			}
		})
	}
}
