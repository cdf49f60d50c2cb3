package e2e

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// customProfile is host-local's as an operator may write it.
const customProfile = `{
  "type": "host-local", "repeatedAdd": "refused", "verifyBy": "nothing", "checkProves": "nothing", "lost": {},
  "addOutlivesSeconds": 7, "del": "released", "store": "remote", "lookup": "none", "podIdentity": "none",
  "namespace": "any", "unique": true, "sources": ["seen by the operator"]
}`

func TestStatusProfile(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	n.Start(t)
	wantProfile(t, n, map[string]string{
		"Profile": "host-local", "verifyBy": "check", "repeatedAdd": "refused", "checkProves": "presence",
		"unique": "true", "addOutlivesSeconds": "0", "namespace": "any", "CNI version": "1.1.0",
	})
}

func TestProfileFile(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	s := n.Start(t, "--plugin-profile="+writeProfile(t, n, customProfile), "--verify-interval=0s")
	wantProfile(t, n, map[string]string{
		"Profile": "host-local", "verifyBy": "nothing", "addOutlivesSeconds": "7", "sources": `["seen by the operator"]`,
	})
	held := s.Allocate(t, harness.Request{Owner: "router"}).Addresses()
	n.WipeStore(t)
	wantAddresses(t, s.Allocate(t, harness.Request{Owner: "router"}).Addresses(), held)
	wantLeases(t, n, 0) // the plugin was not asked, so its loss was not noticed
	s.Release(t, held...)
}

// invalidProfiles are files that cannot be used, each with what is said of it.
func invalidProfiles() map[string]struct{ profile, says string } {
	return map[string]struct{ profile, says string }{
		"an unknown field":           {strings.Replace(customProfile, `"type"`, `"colour": "red", "type"`, 1), `unknown field "colour"`},
		"an unknown value":           {strings.Replace(customProfile, `"refused"`, `"sometimes"`, 1), `repeatedAdd is "sometimes"`},
		"a missing field":            {strings.Replace(customProfile, `"unique": true,`, ``, 1), "unique is missing"},
		"a type that is a path":      {strings.Replace(customProfile, `"host-local"`, `"../host-local"`, 1), `type is "../host-local"`},
		"it contradicts itself":      {strings.Replace(customProfile, `"verifyBy": "nothing"`, `"verifyBy": "check"`, 1), "checkProves"},
		"a request without its form": {strings.Replace(customProfile, `"namespace"`, `"requests": ["CNI_ARGS"], "namespace"`, 1), "requestForm"},
		"no JSON":                    {"type: host-local", "line 1, column 2: invalid character 'y'"},
		"nothing":                    {"", "expected one JSON object"},
	}
}

func TestProfileFileInvalid(t *testing.T) {
	t.Parallel()
	for name, tt := range invalidProfiles() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := nodeWith(t, harness.DualStack())
			file := writeProfile(t, n, tt.profile)
			s := n.Launch(t, "--plugin-profile="+file)
			s.WaitServing(t)
			wantNoNewAddress(t, n, s, file, tt.says)
			if leases := n.Leases(t); len(leases) != 0 {
				t.Errorf("the plugin holds %v; want it not asked", leases)
			}

			writeProfile(t, n, customProfile)
			held := s.Allocate(t, harness.Request{Owner: "router"}).Addresses()
			s.WaitReady(t)
			s.Release(t, held...)
			s.Stop(t)
		})
	}
}

func TestProfileFileMissing(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	file := filepath.Join(n.Dir, "profile.json")
	s := n.Launch(t, "--plugin-profile="+file)
	s.WaitServing(t)
	wantNoNewAddress(t, n, s, file, "no such file")
	writeProfile(t, n, customProfile)
	s.WaitReady(t)
	s.Stop(t)
}

func TestRecordedProfile(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	byCheck := strings.NewReplacer(`"verifyBy": "nothing"`, `"verifyBy": "check"`, `"checkProves": "nothing"`, `"checkProves": "presence"`,
		`"lost": {}`, `"lost": {"codes": [999], "message": "Failed to find address"}`).Replace(customProfile)
	file := writeProfile(t, n, byCheck)
	s := n.Start(t, "--plugin-profile="+file, "--verify-interval=0s")
	kept := s.Allocate(t, harness.Request{Owner: "router"}).Addresses()
	gone := s.Allocate(t, harness.Request{Owner: "health"}).Addresses()
	s.Stop(t)
	writeProfile(t, n, "{")

	s = n.Launch(t, "--plugin-profile="+file, "--verify-interval=0s")
	s.WaitServing(t)
	wantNoNewAddress(t, n, s, file, "expected one JSON object")
	wantAddresses(t, s.Allocate(t, harness.Request{Owner: "router"}).Addresses(), kept)
	s.Release(t, gone...)
	wantLeases(t, n, len(kept))

	// What is lost is noticed by the recorded profile, and got back when the file is mended.
	n.WipeStore(t)
	wantUnavailable(t, s.TryAllocate(t, harness.Request{Owner: "router"}), file)
	writeProfile(t, n, strings.Replace(byCheck, `"podIdentity"`, `"requests": ["args.cni.ips"], "requestForm": "address", "podIdentity"`, 1))
	wantAddresses(t, s.Allocate(t, harness.Request{Owner: "router"}).Addresses(), kept)
	s.WaitConsistent(t)
	s.Stop(t)
}

// wantNoNewAddress looks for the same words in the answer to a new owner, in
// readiness, and in what status prints.
func wantNoNewAddress(t *testing.T, n *harness.Node, s *harness.Sidecar, says ...string) {
	t.Helper()
	wantUnavailable(t, s.TryAllocate(t, harness.Request{Owner: "new"}), says...)
	unready, status := s.Ready(), n.Command(t, "status")
	if status.ExitCode != 0 {
		t.Errorf("status ended with %d and %q; want 0", status.ExitCode, status.Stderr)
	}
	if unready == nil {
		t.Fatal("health says that it is ready")
	}
	for _, want := range says {
		// As a list it is quoted once more.
		if got := strings.ReplaceAll(unready.Error(), `\"`, `"`); !strings.Contains(got, want) {
			t.Errorf("health says %s; want %q", got, want)
		}
		if !strings.Contains(status.Stdout, want) {
			t.Errorf("status prints %s; want %q", status.Stdout, want)
		}
	}
}

// wantUnavailable expects 502 with these words.
func wantUnavailable(t *testing.T, a harness.Response, says ...string) {
	t.Helper()
	var text string
	if err := json.Unmarshal(a.Body, &text); err != nil || a.Status != http.StatusBadGateway {
		t.Fatalf("answered %s (%v); want 502 and a reason", a, err)
	}
	for _, want := range says {
		if !strings.Contains(text, want) {
			t.Errorf("answered %s; want %q", a, want)
		}
	}
}

func writeProfile(t *testing.T, n *harness.Node, profile string) string {
	t.Helper()
	file := filepath.Join(n.Dir, "profile.json")
	harness.Must(t, os.WriteFile(file, []byte(profile), 0o644))
	return file
}

// wantProfile looks for lines "name: value" in what status prints.
func wantProfile(t *testing.T, n *harness.Node, facts map[string]string) {
	t.Helper()
	out := n.Command(t, "status", "--verbose")
	shown := map[string]string{}
	for line := range strings.Lines(out.Stdout) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		shown[name] = strings.TrimSpace(value)
	}
	for name, want := range facts {
		if shown[name] != want {
			t.Errorf("status shows %s as %q; want %q; it printed:\n%s", name, shown[name], want, out.Stdout)
		}
	}
}
