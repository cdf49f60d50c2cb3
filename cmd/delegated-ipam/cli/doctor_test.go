package cli

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/doctor"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// startWithStore serves a daemon with one pool of host-local, whose store has an
// empty file. It returns the daemon and that file.
func startWithStore(t *testing.T) (*testDaemon, string) {
	t.Helper()
	dir := t.TempDir()
	empty := filepath.Join(dir, "pods", "10.15.0.3")
	conf := filepath.Join(dir, "05-cilium.conflist")
	check.Must(t, os.Mkdir(filepath.Dir(empty), 0o755))
	for file, text := range map[string]string{
		empty:                            "",
		conf:                             fmt.Sprintf(`{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"cilium-cni","ipam":{"type":"host-local","dataDir":%q}}]}`, dir),
		filepath.Join(dir, "host-local"): "#!/bin/sh\necho '{\"cniVersion\":\"1.0.0\",\"supportedVersions\":[\"1.0.0\"]}'\n",
	} {
		check.Must(t, os.WriteFile(file, []byte(text), 0o700))
	}
	pool := fmt.Sprintf(`{"pool":"default","network":"pods","file":%q,"plugin":"host-local","profile":"host-local","profile-facts":{"stateDirKey":"dataDir","defaultStateDir":"/nowhere"}}`, conf)
	return startDaemon(t, map[string][]response{
		"GET /v1/healthz": {jsonResponse(200, `{"delegated-ipam":{"ready":true,"pools":[`+pool+`],"options":[`+optionsOf(dir)+`]}}`)},
		"GET /v1/ipam":    {jsonResponse(200, "[]")},
	}), empty
}

func optionsOf(dir string) string {
	var all []string
	for _, o := range []string{"state-dir", "cni-conf-dir", "cni-bin-dir"} {
		all = append(all, fmt.Sprintf(`{"name":%q,"value":%q,"source":"flag"}`, o, dir))
	}
	return strings.Join(all, ",")
}

func findings(t *testing.T, o outcome) []doctor.Finding {
	t.Helper()
	var all []doctor.Finding
	if err := json.Unmarshal([]byte(o.stdout), &all); err != nil {
		t.Fatalf("%q: %v", o.stdout, err)
	}
	return all
}

func TestDoctorRepair(t *testing.T) {
	s, empty := startWithStore(t)
	for _, step := range []struct {
		name  string
		args  []string
		state doctor.State
		there bool
	}{
		{"check", nil, doctor.Warning, true},
		{"repair", []string{"--repair"}, doctor.OK, false},
	} {
		o := s.dependencies().exec(t, slices.Concat([]string{"doctor", "-o", "json"}, step.args)...)
		found := findings(t, o)
		// A temporary directory in memory is warned of, too.
		want := map[doctor.State]int{doctor.OK: 0, doctor.Warning: 3, doctor.Error: 1}[doctor.Worst(found)]
		if o.code != want || (len(bad(t, o)) == 0) != (step.state == doctor.OK) {
			t.Errorf("%s ended with status %d; want %d; stderr: %s; found %q", step.name, o.code, want, o.stderr, bad(t, o))
		}
		i := slices.IndexFunc(found, func(f doctor.Finding) bool { return f.Check == "stale-lease-files" })
		if i < 0 || found[i].State != step.state || found[i].Address != "10.15.0.3" || found[i].Pool != "default" {
			t.Errorf("%s found %+v; want %s of 10.15.0.3 in the pool", step.name, found, step.state)
		}
		if _, err := os.Stat(empty); (err == nil) != step.there {
			t.Errorf("after %s the file is there: %t", step.name, err == nil)
		}
	}
}

func TestDoctorTable(t *testing.T) {
	s, empty := startWithStore(t)
	o := s.dependencies().exec(t, "doctor")
	s.wantRequests(t, "GET /v1/healthz", "GET /v1/ipam", "GET /v1/ipam")
	var got []string
	for line := range strings.Lines(o.stdout) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	for _, want := range []string{
		"STATE CHECK POOL MESSAGE", "ok daemon - the daemon responds and is ready", "ok options - the options of the running daemon are used",
		"warning stale-lease-files default " + empty + " contains no container ID: a killed host-local left it, and no CNI call frees address " + filepath.Base(empty),
	} {
		if !slices.Contains(got, want) {
			t.Errorf("printed\n%swithout the line %q", o.stdout, want)
		}
	}
	seen := slices.IndexFunc(got, func(line string) bool { return strings.HasPrefix(line, "warning stale-lease-files") })
	if seen < 0 || seen+1 >= len(got) || got[seen+1] != "remedy: `delegated-ipam doctor --repair` removes it" {
		t.Errorf("printed\n%swithout a remedy below the stale file", o.stdout)
	}
	lines := strings.Split(o.stdout, "\n")
	if column := strings.Index(lines[0], "MESSAGE"); strings.Index(lines[seen+1], "remedy") != column {
		t.Errorf("printed\n%swhich is not aligned", o.stdout)
	}
}

// Findings that differ only in their address have one message and one remedy.
func TestDoctorGroups(t *testing.T) {
	s, empty := startWithStore(t)
	for i := range 14 {
		put(t, filepath.Join(filepath.Dir(empty), fmt.Sprintf("10.15.0.%d", i+4)), "")
	}
	o := s.dependencies().exec(t, "doctor")
	if n := strings.Count(o.stdout, "contains no container ID"); n != 1 || strings.Count(o.stdout, "`delegated-ipam doctor --repair` removes it") != 1 ||
		!strings.Contains(o.stdout, "and 14 others (-o json has each): 10.15.0.3, 10.15.0.4,") || !strings.Contains(o.stdout, "10.15.0.17\n") {
		t.Errorf("printed\n%swant one message and one remedy, with all addresses", o.stdout)
	}
	if n := len(bad(t, s.dependencies().exec(t, "doctor", "-o=json"))); n != 15 {
		t.Errorf("%d findings as JSON; want 15", n)
	}
}

// bad returns the findings that are not ok and do not depend on the machine.
func bad(t *testing.T, o outcome) []string {
	t.Helper()
	var all []string
	for _, f := range findings(t, o) {
		if f.State != doctor.OK && !slices.Contains([]string{"state-dir", "disk-space"}, f.Check) {
			all = append(all, fmt.Sprintf("%s %s %s", f.State, f.Check, f.Message))
		}
	}
	return all
}

func TestDoctorOptions(t *testing.T) {
	quiet := map[string]string{
		"DELEGATED_IPAM_SERVICE_HOST": "10.0.0.1", "DELEGATED_IPAM_METRICS_SERVICE_PORT_HTTP": "9", "DELEGATED_IPAM_PORT_9_TCP_ADDR": "10.0.0.1",
		"DELEGATED_IPAM_STATE_DIR": "/elsewhere", // the daemon has a flag, which overrides it there, too
	}
	const known = `{"name":"owners","value":"*","source":"default"},{"name":"of-the-future","value":"1","source":"default"},`
	for name, tt := range map[string]struct {
		// own are options of the daemon.
		own  string
		env  map[string]string
		args []string
		want string
	}{
		"service links and overridden variable": {known, quiet, nil, ""},
		"flag": {
			known, nil, []string{"--state-dir=/elsewhere"}, `warning options --state-dir is "/elsewhere" here (flag), and the daemon runs with`,
		},
		"variable": {
			known,
			map[string]string{"DELEGATED_IPAM_OWNERS": "x"},
			nil,
			`warning options --owners is "x" here (environment), and the daemon runs with "*" (default)`,
		},
		"unknown variable": {
			known,
			map[string]string{"DELEGATED_IPAM_OWNER": "x"},
			nil,
			"warning options environment variable DELEGATED_IPAM_OWNER is not an option",
		},
		"malformed variable": {
			known,
			map[string]string{"DELEGATED_IPAM_ENABLE_IPV4": "perhaps"},
			nil,
			`error options DELEGATED_IPAM_ENABLE_IPV4 is "perhaps"; expected true or false`,
		},
		"no config-dir": {known, nil, []string{"--config-dir=/nowhere"}, `error options --config-dir is "/nowhere"`},
		"unreadable option of the daemon": {
			`{"name":"enable-ipv4","value":"perhaps","source":"flag"},`, nil, nil,
			"error options the daemon's own option --enable-ipv4 cannot be read",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := startWithStore(t)
			body := &s.responses["GET /v1/healthz"][0].body
			*body = strings.Replace(*body, `"options":[`, `"options":[`+tt.own, 1)
			d := s.dependencies()
			maps.Copy(d.env, tt.env)
			got := bad(t, d.exec(t, slices.Concat([]string{"doctor", "--repair", "-o", "json"}, tt.args)...))
			if (tt.want == "") != (len(got) == 0) || tt.own == known && len(got) > 1 || len(got) > 0 && !strings.HasPrefix(got[0], tt.want) {
				t.Errorf("found %q; want %q", got, tt.want)
			}
		})
	}
}

func TestDoctorNoDaemon(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "none")
	o := testDependencies(map[string]string{options.SocketEnv: socket}).exec(t, "doctor")
	o.wants(t, cmdline.ExitFailed, o.stdout, "doctor: the worst of ", "error")
	for _, says := range []string{"CHECK", "daemon", "error", socket, "those of a new start"} {
		if !strings.Contains(o.stdout, says) {
			t.Errorf("printed %q; want it to say %q", o.stdout, says)
		}
	}
}

// doctor reports a server that is not a daemon.
func TestDoctorForeignServer(t *testing.T) {
	for body, path := range map[string]string{
		`{"cilium":{"state":"Ok"},"ipam":{}}`:       "/v1/healthz",
		`{"delegated-ipam":{"pools":[null]}}`:       "/v1/healthz",
		`{"delegated-ipam":{"options":[null]}}`:     "/v1/healthz",
		`{"delegated-ipam":{"quarantined":[null]}}`: "/v1/healthz",
		`[null]`: "/v1/ipam",
		`[{"owner":"router","addresses":[null]}]`: "/v1/ipam",
	} {
		t.Run(body, func(t *testing.T) {
			s, _ := startWithStore(t)
			s.responses["GET "+path] = []response{jsonResponse(200, body)}
			o := s.dependencies().exec(t, "doctor", "-o", "json")
			if got := bad(t, o); o.code != cmdline.ExitFailed || !slices.ContainsFunc(got, func(line string) bool {
				return strings.HasPrefix(line, "error daemon ") && strings.Contains(line, s.socket+" is not a socket of delegated-ipam")
			}) {
				t.Errorf("ended with status %d and found %q; want an error of the daemon", o.code, got)
			}
		})
	}
}

func TestDoctorListRefused(t *testing.T) {
	s, _ := startWithStore(t)
	s.responses["GET /v1/ipam"] = []response{{code: 403}}
	o := s.dependencies().exec(t, "doctor", "-o", "json")
	var got []string
	for _, line := range bad(t, o) {
		got = append(got, strings.Join(strings.Fields(line)[:2], " "))
	}
	if want := []string{"error daemon", "warning stale-lease-files"}; o.code != cmdline.ExitFailed || !slices.Equal(got, want) {
		t.Errorf("ended with status %d and found %q; want %q", o.code, got, want)
	}
}
