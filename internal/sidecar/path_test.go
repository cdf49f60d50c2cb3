package sidecar

import (
	"bytes"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime/trace"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// pathRow is a row of the table in docs/design/how-it-works.md, The path of a request.
var pathRow = regexp.MustCompile("(?m)^\\| \\d+ \\| `([^`]+)` \\| `(?:[^`.]+\\.)?([^`]+)` \\| .+ \\|$")

// steps are the functions at whose calls the callers are on the path of a request: it is accepted and
// read, waits for its work, makes a record durable, starts a process and is responded to.
var steps = regexp.MustCompile(`(?m)( net\.\(\*UnixListener\)\.AcceptUnix| net\.\(\*conn\)\.(Read|Write)| os\.\(\*File\)\.Sync| os\.StartProcess|engine\.\(\*Engine\)\.run)$`)

// ownFrame is a function of this module in a stack, without its receiver and closures.
var ownFrame = regexp.MustCompile(`(?m)delegated-ipam/(internal/[\w/]+)\.(?:[\w()*]+\.)*?([A-Za-z]\w*)(?:\.func[\d.]+)*$`)

func TestRequestPath(t *testing.T) {
	page, err := os.ReadFile("../../docs/design/how-it-works.md")
	harness.Must(t, err)
	_, section, _ := strings.Cut(string(page), "\n## The path of a request\n")
	table, _, _ := strings.Cut(section, "\n## ")
	listed := map[string]bool{}
	for _, row := range pathRow.FindAllStringSubmatch(table, -1) {
		listed[path.Dir(row[1])+" "+row[2]] = true
	}
	called := calledFunctions(t, traceRequest(t))
	for _, f := range slices.Sorted(maps.Keys(called)) {
		if !listed[f] {
			t.Errorf("the table lacks %s", f)
		}
	}
	if len(called) < 25 {
		t.Errorf("the trace has %d functions; want all: %q", len(called), slices.Sorted(maps.Keys(called)))
	}
}

// traceRequest returns the file of an execution trace of POST /v1/ipam of a new owner.
func traceRequest(t *testing.T) string {
	t.Helper()
	c := withSmallPlugin(t)
	log, ended, stop := run(t, c)
	log.await(t, "msg=Ready", ended)
	var recorded bytes.Buffer
	harness.Must(t, trace.Start(&recorded))
	resp, err := (&http.Client{Transport: transport(c)}).Post("http://localhost/v1/ipam?owner=health", "", http.NoBody)
	trace.Stop()
	harness.Must(t, err)
	harness.Must(t, resp.Body.Close())
	if resp.StatusCode != http.StatusCreated {
		t.Fatalf("status %s", resp.Status)
	}
	harness.Must(t, stop())
	file := filepath.Join(t.TempDir(), "trace")
	harness.Must(t, os.WriteFile(file, recorded.Bytes(), 0o600))
	return file
}

// calledFunctions returns the functions of this module, with their directories, that called steps on
// behalf of a request.
func calledFunctions(t *testing.T, traceFile string) map[string]bool {
	t.Helper()
	called := map[string]bool{}
	for _, kind := range []string{"syscall", "sync"} {
		profile, err := exec.CommandContext(t.Context(), "go", "tool", "trace", "-pprof="+kind, traceFile).Output()
		harness.Must(t, err)
		harness.Must(t, os.WriteFile(traceFile+"."+kind, profile, 0o600))
		text, err := exec.CommandContext(t.Context(), "go", "tool", "pprof", "-traces", traceFile+"."+kind).Output()
		harness.Must(t, err)
		for stack := range strings.SplitSeq(string(text), "\n-----------+") {
			request := strings.Contains(stack, "net/http.(*conn).serve") || strings.Contains(stack, "net/http.(*connReader)") ||
				strings.Contains(stack, "net/http.(*Server).Serve") || strings.Contains(stack, "engine.(*operation).work")
			if !request || !steps.MatchString(stack) {
				continue
			}
			stack, _, _ = strings.Cut(stack, "net/http.(*Server).Serve\n") // its caller began before the request
			for _, f := range ownFrame.FindAllStringSubmatch(stack, -1) {
				called[f[1]+" "+f[2]] = true
			}
		}
	}
	return called
}
