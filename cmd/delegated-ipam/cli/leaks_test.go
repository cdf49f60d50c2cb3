package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

const leakID = "cilium-agent-gone-0123456789abcdef"

// startWithLeaks serves a daemon whose store has two leaks and the lease of a pod.
func startWithLeaks(t *testing.T) (s *testDaemon, store, report string) {
	t.Helper()
	s, empty := startWithStore(t)
	store = filepath.Dir(empty)
	check.Must(t, os.Remove(empty))
	for name, id := range map[string]string{"10.15.0.7": leakID, "fd00::7": leakID + "-g1", "10.15.0.8": "0123abcd"} {
		put(t, filepath.Join(store, name), id+"\r\neth0")
	}
	s.responses["DELETE /v1/ipam/10.15.0.7"] = []response{{code: 200}}
	s.responses["DELETE /v1/ipam/fd00::7"] = []response{jsonResponse(404, `"its owner has an attachment"`)}
	return s, store, filepath.Join(filepath.Dir(store), "leaks.json")
}

func deletions(s *testDaemon) (all []string) {
	for _, request := range s.log {
		if strings.HasPrefix(request, "DELETE") {
			all = append(all, request)
		}
	}
	return all
}

func TestDoctorReport(t *testing.T) {
	s, store, file := startWithLeaks(t)
	o := s.dependencies().exec(t, "doctor", "--report", file)
	o.wantsAnyOutput(t, exitWarning, "the report has 2 leases", "doctor --repair --report "+file, "warning")
	check.Equal(t, "requests that change something", len(deletions(s)), 0)
	info, err := os.Stat(file)
	check.Must(t, err)
	check.Equal(t, "mode", info.Mode().Perm(), 0o600)
	data, err := os.ReadFile(file)
	check.Must(t, err)
	var r leakReport
	check.Must(t, json.Unmarshal(data, &r))
	if !r.Created.Equal(noon()) || r.Review == "" || len(r.Leases) != 2 || r.Leases[0].Address != "10.15.0.7" || r.Leases[0].Lease.ContainerID != leakID || r.Leases[0].Lease.Written.IsZero() {
		t.Errorf("the report is %s", data)
	}
	s.dependencies().exec(t, "doctor", "--report", file).wantsAnyOutput(t, cmdline.ExitFailed, "--report", "file exists")

	o = s.dependencies().exec(t, "doctor", "--repair", "--report", file)
	o.wants(t, cmdline.ExitFailed, "", "released 10.15.0.7 (container ID "+leakID+")", "fd00::7 was not released: its owner has an attachment")
	if got := strings.Join(deletions(s), " "); got != "DELETE /v1/ipam/10.15.0.7?lease="+leakID+"&pool=default DELETE /v1/ipam/fd00::7?lease="+leakID+"-g1&pool=default" {
		t.Errorf("requested %s", got)
	}

	s.log = nil
	check.Must(t, os.Chtimes(filepath.Join(store, "10.15.0.7"), time.Time{}, noon())) // another lease now
	check.Must(t, os.Remove(filepath.Join(store, "fd00::7")))
	s.dependencies().exec(t, "doctor", "--repair", "--report", file).wantsAnyOutput(t, exitWarning, "skipped 10.15.0.7: ", "skipped fd00::7: ")
	check.Equal(t, "requests", len(deletions(s)), 0)
}

func TestDoctorReportStreams(t *testing.T) {
	s, _, _ := startWithLeaks(t)
	s.responses["DELETE /v1/ipam/fd00::7"] = []response{{code: 200}}
	report := s.dependencies().exec(t, "doctor", "--report=-")
	report.wantsAnyOutput(t, cmdline.ExitOK, "the report has 2 leases")
	check.True(t, strings.HasPrefix(report.stdout, "{"), "printed %s", report.stdout)
	repair := func(text string) (code int, stderr string) {
		var out, errors strings.Builder
		cmd := s.dependencies().command()
		cmd.SetIn(strings.NewReader(text))
		code = cmdline.Execute(t.Context(), cmd, []string{"doctor", "--repair", "--report=-"}, &out, &errors)
		return code, errors.String()
	}
	none := filepath.Join(t.TempDir(), "leaks.json")
	s.dependencies().exec(t, "doctor", "--repair", "--report", none).wantsAnyOutput(t, cmdline.ExitFailed, `--report is "`+none+`": no such file`, "expected a file that")
	for name, tt := range map[string]struct{ text, want string }{
		"another node": {strings.Replace(report.stdout, `"node": ""`, `"node": "other"`, 1), `the report is of node "other"`},
		"no JSON":      {"leases", "--report"},
		"no lease":     {strings.ReplaceAll(report.stdout, `"lease":`, `"x":`), "skipped 10.15.0.7"},
		"an address":   {strings.ReplaceAll(report.stdout, `"address": "10.15.0.7"`, `"address": "x"`), "x was not released"},
		"as reported":  {report.stdout, "released fd00::7"},
	} {
		if code, stderr := repair(tt.text); code == cmdline.ExitOK || !strings.Contains(stderr, tt.want) {
			t.Errorf("%s: status %d, stderr %q; want %q", name, code, stderr, tt.want)
		}
	}
	check.Must(t, os.Remove(s.socket))
	s.dependencies().exec(t, "doctor", "--report=-").wantsAnyOutput(t, cmdline.ExitFailed, "--report needs a running daemon")
}

// The stale lease files that a repair removes are printed. Without a valid report it removes none.
func TestDoctorRepairsWithReport(t *testing.T) {
	s, empty := startWithStore(t)
	file := filepath.Join(t.TempDir(), "leaks.json")
	repair := []string{"doctor", "--repair", "--report", file}
	s.dependencies().exec(t, repair...).wantsAnyOutput(t, cmdline.ExitFailed, "no such file")
	_, err := os.Stat(empty)
	check.Must(t, err)
	s.dependencies().exec(t, "doctor", "--report", file)
	if o := s.dependencies().exec(t, repair...); !strings.Contains(o.stdout, empty+" contained no container ID and was removed") {
		t.Errorf("printed %s", o.stdout)
	}
}
