package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/pkg/doctor"
	"github.com/delegated-ipam/delegated-ipam/pkg/option"
	"github.com/delegated-ipam/delegated-ipam/pkg/sidecar"
)

// startWithStore serves a sidecar with one pool of host-local, whose store has an
// empty file. It returns the sidecar and that file.
func startWithStore(t *testing.T) (*testSidecar, string) {
	t.Helper()
	dir := t.TempDir()
	empty := filepath.Join(dir, "pods", "10.15.0.3")
	conf := filepath.Join(dir, "05-cilium.conflist")
	if err := os.Mkdir(filepath.Dir(empty), 0o755); err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{
		empty: "",
		conf:  fmt.Sprintf(`{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"cilium-cni","ipam":{"type":"host-local","dataDir":%q}}]}`, dir),
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool := fmt.Sprintf(`{"pool":"default","network":"pods","file":%q,"plugin":"host-local","profile":"host-local","profile-facts":{"stateDirKey":"dataDir","defaultStateDir":"/nowhere"}}`, conf)
	return startSidecar(t, map[string][]answer{
		"GET /v1/healthz": {jsonAnswer(200, `{"delegated-ipam":{"ready":true,"pools":[`+pool+`]}}`)},
		"GET /v1/ipam":    {jsonAnswer(200, "[]")},
	}), empty
}

// findings reads what `doctor -o json` printed.
func findings(t *testing.T, o outcome) []doctor.Finding {
	t.Helper()
	var all []doctor.Finding
	if err := json.Unmarshal([]byte(o.stdout), &all); err != nil {
		t.Fatalf("%q: %v", o.stdout, err)
	}
	return all
}

func TestDoctorEndsWithStatus1WhileSomethingIsWrongAnd0OnceItIsRepaired(t *testing.T) {
	s, empty := startWithStore(t)
	for _, step := range []struct {
		name  string
		args  []string
		code  int
		state doctor.State
		there bool
	}{
		{"a look", nil, option.Failed, doctor.Warning, true},
		{"a repair", []string{"--repair"}, option.Done, doctor.OK, false},
	} {
		o := s.program().runHere(t, slices.Concat([]string{"doctor", "-o", "json"}, step.args)...)
		if o.code != step.code {
			t.Errorf("%s ended with status %d; want %d; stderr: %s", step.name, o.code, step.code, o.stderr)
		}
		found := findings(t, o)
		i := slices.IndexFunc(found, func(f doctor.Finding) bool { return f.Check == doctor.CheckEmptyFiles })
		if i < 0 || found[i].State != step.state || found[i].Address != "10.15.0.3" || found[i].Pool != "default" {
			t.Errorf("%s found %+v; want %s of 10.15.0.3 in the pool", step.name, found, step.state)
		}
		if _, err := os.Stat(empty); (err == nil) != step.there {
			t.Errorf("after %s the file is there: %t", step.name, err == nil)
		}
	}
}

func TestDoctorListsBeforeAndAfterItLooks(t *testing.T) {
	s, _ := startWithStore(t)
	s.program().runHere(t, "doctor")
	if got, want := s.requests(), []string{"GET /v1/healthz", "GET /v1/ipam", "GET /v1/ipam"}; !slices.Equal(got, want) {
		t.Errorf("asked %q; want %q", got, want)
	}
}

func TestDoctorPrintsATable(t *testing.T) {
	s := startSidecar(t, map[string][]answer{
		"GET /v1/healthz": {jsonAnswer(200, `{"delegated-ipam":{"ready":true,"pools":[{"pool":"blue","network":"pods","plugin":"static"}]}}`)},
		"GET /v1/ipam":    {jsonAnswer(200, "[]")},
	})
	s.program().runHere(t, "doctor").wants(t, option.Done,
		"CHECK     POOL   STATE   SEEN                                                                              WHAT TO DO\n"+
			"sidecar   -      ok      it answers and is ready                                                           -\n"+
			"store     blue   ok      not looked at: only the files of host-local are known, and the plugin is static   -\n")
}

func TestDoctorOfASidecarThatDoesNotAnswerSaysSoInItsTable(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "none")
	o := testProgram(map[string]string{sidecar.SocketEnv: socket}).runHere(t, "doctor")
	o.wants(t, option.Failed, o.stdout, "doctor: not all is well", "error")
	for _, says := range []string{"CHECK", "sidecar", "error", socket, "nothing else could be looked at"} {
		if !strings.Contains(o.stdout, says) {
			t.Errorf("printed %q; want it to say %q", o.stdout, says)
		}
	}
}

func TestDoctorOfASidecarThatRefusesItsListStillLooksForEmptyFiles(t *testing.T) {
	s, _ := startWithStore(t)
	s.answers["GET /v1/ipam"] = []answer{{code: 403}}
	o := s.program().runHere(t, "doctor", "-o", "json")
	var got []string
	for _, f := range findings(t, o) {
		got = append(got, fmt.Sprintf("%s %s", f.State, f.Check))
	}
	if want := []string{"ok sidecar", "error sidecar", "warning empty-files"}; o.code != option.Failed || !slices.Equal(got, want) {
		t.Errorf("ended with status %d and found %q; want %q", o.code, got, want)
	}
}
