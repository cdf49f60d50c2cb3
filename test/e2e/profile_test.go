package e2e

import (
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
	texts := []string{file, "expected one JSON object"}
	s.TryAllocate(t, harness.Request{Owner: "new"}).WantError(t, http.StatusBadGateway, texts...)
	wantNotReady(t, s.Ready(), texts...)
	for _, text := range texts {
		wantCommand(t, n, command{line: "status", stdout: text})
	}
	wantAddresses(t, s.AllocateFor(t, "router"), kept)
	s.Release(t, released...)
	wantLeaseCount(t, n, len(kept))

	// A loss is found by the recorded profile, and reacquired when the file is valid again.
	n.WipeStore(t)
	s.TryAllocate(t, harness.Request{Owner: "router"}).WantError(t, http.StatusBadGateway, file)
	writeProfile(t, n, strings.Replace(byCheck, `"podIdentity"`, `"requests": ["args.cni.ips"], "requestForm": "address", "podIdentity"`, 1))
	wantAddresses(t, s.AllocateFor(t, "router"), kept)
	s.WaitConsistent(t)
	s.Stop(t)
}

// An unusable file does not keep a start from comparing addresses of host-local with its ranges.
func TestUnusableProfileAtStart(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	flag := "--plugin-profile=" + writeProfile(t, n, strings.Replace(customProfile, "host-local", "other", 1))
	s := n.Start(t, flag)
	kept := s.AllocateFor(t, "router")
	s.Stop(t)
	writeProfile(t, n, "{")
	s = n.Launch(t, flag)
	s.WaitServing(t)
	wantAddresses(t, s.AllocateFor(t, "router"), kept)
	s.TryAllocate(t, harness.Request{Owner: "new"}).WantError(t, http.StatusBadGateway, "expected one JSON object")
}

func writeProfile(t *testing.T, n *harness.Node, profile string) string {
	t.Helper()
	file := filepath.Join(n.Dir, "profile.json")
	check.Must(t, os.WriteFile(file, []byte(profile), 0o644))
	return file
}
