package e2e

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// customProfile is a profile of host-local that an operator wrote.
const customProfile = `{
  "type": "host-local", "repeatedAdd": "refused", "verifyBy": "nothing", "checkProves": "nothing", "lost": {},
  "addOutlivesSeconds": 7, "del": "released", "store": "remote", "lookup": "none", "podIdentity": "none",
  "namespace": "any", "unique": true, "sources": ["the operator"]
}`

func TestRecordedProfile(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	byCheck := strings.NewReplacer(`"verifyBy": "nothing"`, `"verifyBy": "check"`, `"checkProves": "nothing"`, `"checkProves": "presence"`,
		`"lost": {}`, `"lost": {"codes": [999], "message": "Failed to find address"}`).Replace(customProfile)
	file := writeProfile(t, n, byCheck)
	s := n.Start(t, "--plugin-profile="+file, "--verify-interval=0s")
	kept := s.AllocateFor(t, "router")
	released := s.AllocateFor(t, "health")
	s.Stop(t)
	writeProfile(t, n, "{")

	s = n.Launch(t, "--plugin-profile="+file, "--verify-interval=0s")
	s.WaitServing(t)
	wantNoNewAddress(t, n, s, file, "expected one JSON object")
	wantAddresses(t, s.AllocateFor(t, "router"), kept)
	s.Release(t, released...)
	wantLeaseCount(t, n, len(kept))

	// A loss is found by the recorded profile, and reacquired when the file is valid again.
	n.WipeStore(t)
	wantUnavailable(t, s.TryAllocate(t, harness.Request{Owner: "router"}), file)
	writeProfile(t, n, strings.Replace(byCheck, `"podIdentity"`, `"requests": ["args.cni.ips"], "requestForm": "address", "podIdentity"`, 1))
	wantAddresses(t, s.AllocateFor(t, "router"), kept)
	s.WaitConsistent(t)
	s.Stop(t)
}

// wantNoNewAddress wants the texts in the response to a new owner, in readiness, and in the
// output of status.
func wantNoNewAddress(t *testing.T, n *harness.Node, s *harness.Daemon, texts ...string) {
	t.Helper()
	wantUnavailable(t, s.TryAllocate(t, harness.Request{Owner: "new"}), texts...)
	ready, status := s.Ready(), n.Command(t, "status")
	if status.ExitCode != 0 {
		t.Errorf("status ended with %d and %q; want 0", status.ExitCode, status.Stderr)
	}
	if ready == nil {
		t.Fatal("the daemon is ready")
	}
	// The reasons are a list of quoted texts.
	wantNotReady(t, errors.New(strings.ReplaceAll(ready.Error(), `\"`, `"`)), texts...)
	for _, text := range texts {
		if !strings.Contains(status.Stdout, text) {
			t.Errorf("status prints %s; want it to contain %q", status.Stdout, text)
		}
	}
}

// wantUnavailable wants the status 502 and the texts in the decoded error.
func wantUnavailable(t *testing.T, a harness.Response, texts ...string) {
	t.Helper()
	var message string
	if err := json.Unmarshal(a.Body, &message); err != nil || a.Status != http.StatusBadGateway {
		t.Fatalf("answered %s (%v); want 502 and a reason", a, err)
	}
	for _, text := range texts {
		if !strings.Contains(message, text) {
			t.Errorf("answered %s; want it to contain %q", a, text)
		}
	}
}

func writeProfile(t *testing.T, n *harness.Node, profile string) string {
	t.Helper()
	file := filepath.Join(n.Dir, "profile.json")
	check.Must(t, os.WriteFile(file, []byte(profile), 0o644))
	return file
}
