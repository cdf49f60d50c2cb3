package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
	"github.com/delegated-ipam/delegated-ipam/test/strace"
)

func TestMain(m *testing.M) { harness.Main(m) }

// counts is the cost of one request without its time.
type counts struct {
	// verbs are the plugin processes, in order.
	verbs []string
	// fsyncs, writes and bytes are those below the state directory, one write of them to the history, leases the fsyncs below the plugin's directory.
	fsyncs, writes, bytes, leases int
	// begun are writes to the journal that no fsync has followed yet: after the last one they are those of a removal, which
	// may begin before the response is sent.
	begun int
}

func TestRequestCounts(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		interval string
		proven   bool // an ADD of another owner has proven the plugin's store
		held     bool // before the request that is counted
		release  bool
		want     counts
	}{
		"first owner: DEL, ADD, two writes": {verifyNever, false, false, false, counts{fsyncs: 4, writes: 7, leases: 3}},
		"new owner: ADD, two writes":        {verifyNever, true, false, false, counts{fsyncs: 4, writes: 7, leases: 2}},
		"held, verified by a lookup":        {"--verify-interval=0s", false, true, false, counts{}},
		"held, verified before":             {verifyNever, false, true, false, counts{}},
		"release: a write, DEL":             {verifyNever, false, true, true, counts{fsyncs: 2, writes: 4, leases: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := harness.NewNode(t)
			n.WriteNetwork(t, "05-cilium", harness.IPv4Only())
			trace := filepath.Join(n.Dir, "trace")
			n.Wrapper = underStrace(t, trace)
			s := n.Launch(t, tt.interval, "--enable-ipv6=false")
			s.WaitReady(t)
			request := func() string { return s.Allocate(t, harness.Request{Owner: owner}).Address.IPv4 }
			if tt.proven {
				s.Allocate(t, harness.Request{Owner: "kube-system/other"})
			}
			ip := ""
			if tt.held {
				ip = request()
			}
			if tt.release {
				s.Release(t, ip)
			} else {
				request()
			}
			maxBytes := tt.want.writes * 2 * os.Getpagesize()
			s.Stop(t)
			got := lastRequest(harness.ReadTrace(t, trace, s.PID()), n.StateDir, n.StoreDir)
			if got.bytes > maxBytes {
				t.Errorf("%d bytes written below the state directory; want the pages of each change, at most %d", got.bytes, maxBytes)
			}
			got.bytes, got.begun = 0, 0
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %+v; want %+v", got, tt.want)
			}
		})
	}
}

// underStrace returns the command under which the daemon is traced.
func underStrace(t *testing.T, trace string) []string {
	t.Helper()
	path, err := exec.LookPath("strace")
	if err == nil {
		err = strace.Try(t.Context())
	}
	if err != nil {
		harness.Skipf(t, "system calls cannot be counted: %v", err)
	}
	// With -D the daemon is our child, and strace is not its parent.
	return []string{path, "-D", "-f", "-v", "-y", "-s", "65536", "-e", "signal=none", "-o", trace, "-e", "trace=write,pwrite64,?writev,fsync,fdatasync,execve"}
}

var (
	verbOf   = regexp.MustCompile(`"CNI_COMMAND=([A-Z]+)"`)
	response = regexp.MustCompile(`^\d+<[^>]*>, "HTTP/1\.1 \d+ `)
	inFile   = regexp.MustCompile(`^\d+<([^>]*)>`)
	length   = regexp.MustCompile(`", (\d+)(?:, \d+)?$`)
)

// lastRequest returns the counts between the last two responses.
func lastRequest(trace, directory, store string) counts {
	var last, now counts
	for _, s := range strace.Parse(trace) {
		switch {
		case s.Ended:
		case s.Call == "execve":
			if m := verbOf.FindStringSubmatch(s.Args); m != nil {
				now.verbs = append(now.verbs, m[1])
			}
		case s.Call == "write" && response.MatchString(s.Args):
			last, now = now, counts{}
		default:
			now.count(s, directory)
			var leases counts
			leases.count(s, store)
			now.leases += leases.fsyncs
		}
	}
	return last
}

// count counts a call on a file below a directory.
func (c *counts) count(s strace.Step, directory string) {
	m := inFile.FindStringSubmatch(s.Args)
	if m == nil || !strings.HasPrefix(m[1], directory+"/") {
		return
	}
	if strings.HasSuffix(s.Call, "sync") {
		c.fsyncs, c.writes, c.begun = c.fsyncs+1, c.writes+c.begun, 0
		return
	}
	if filepath.Base(m[1]) == "journal.db" {
		c.begun++
	} else {
		c.writes++
	}
	if m := length.FindStringSubmatch(s.Args); m != nil {
		n, _ := strconv.Atoi(m[1]) // digits, by the pattern
		c.bytes += n
	}
}
