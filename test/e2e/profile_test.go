package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// ownProfile is host-local's as an operator may write it.
const ownProfile = `{
  "type": "host-local", "repeatedAdd": "refused", "verifyBy": "nothing", "checkProves": "nothing", "lost": {},
  "addOutlivesSeconds": 7, "del": "released", "addAfterDelSeconds": 0, "podIdentity": "none",
  "namespace": "any", "unique": true, "sources": ["seen by the operator"]
}`

func TestStatusShowsWhatIsKnownOfThePlugin(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	n.Start(t)
	wantFacts(t, n, map[string]string{
		"Profile": "host-local", "verifyBy": "check", "repeatedAdd": "refused", "checkProves": "presence",
		"unique": "true", "addOutlivesSeconds": "0", "namespace": "any", "CNI version": "1.1.0",
	})
}

func TestAProfileFileReplacesWhatIsKnownAndIsShown(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	s := n.Start(t, "--plugin-profile="+writeProfile(t, n, ownProfile), "--verify-interval=0s")
	wantFacts(t, n, map[string]string{
		"Profile": "host-local", "verifyBy": "nothing", "addOutlivesSeconds": "7", "sources": `["seen by the operator"]`,
	})
	held := s.Allocate(t, harness.Request{Owner: "router"}).Addresses()
	n.WipeStore(t)
	wantSame(t, s.Allocate(t, harness.Request{Owner: "router"}).Addresses(), held)
	wantLeases(t, n, 0) // the plugin was not asked, so its loss was not noticed
	s.Release(t, held...)
}

func TestABrokenProfileFileIsRefusedAtStartByItsName(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ profile, says string }{
		"an unknown field":           {strings.Replace(ownProfile, `"type"`, `"colour": "red", "type"`, 1), "colour"},
		"an unknown value":           {strings.Replace(ownProfile, `"refused"`, `"sometimes"`, 1), "repeatedAdd"},
		"a missing field":            {strings.Replace(ownProfile, `"unique": true,`, ``, 1), "unique"},
		"it contradicts itself":      {strings.Replace(ownProfile, `"verifyBy": "nothing"`, `"verifyBy": "check"`, 1), "checkProves"},
		"a request without its form": {strings.Replace(ownProfile, `"namespace"`, `"requests": ["CNI_ARGS"], "namespace"`, 1), "requestForm"},
		"no JSON":                    {"type: host-local", "plugin profile"},
		"nothing":                    {"", "plugin profile"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := nodeWith(t, harness.DualStack())
			file := writeProfile(t, n, tt.profile)
			out := n.Command(t, n.ServeArgs("--plugin-profile="+file)...)
			if out.Code != 2 || !strings.Contains(out.Stderr, file) || !strings.Contains(out.Stderr, tt.says) {
				t.Errorf("ended with status %d and %q; want 2, the file %s and %q", out.Code, out.Stderr, file, tt.says)
			}
		})
	}
}

func writeProfile(t *testing.T, n *harness.Node, profile string) string {
	t.Helper()
	file := filepath.Join(n.Dir, "profile.json")
	if err := os.WriteFile(file, []byte(profile), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// wantFacts looks for lines "name: value" in what status prints.
func wantFacts(t *testing.T, n *harness.Node, facts map[string]string) {
	t.Helper()
	out := n.Command(t, "status")
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
