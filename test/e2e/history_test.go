package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// The history has what happened to an address, also before a daemon that was killed, and after a line that is not complete.
func TestHistory(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	s := n.Start(t)
	both := s.Allocate(t, harness.Request{Owner: "router"}).Addresses()
	s.Kill(t)
	file := filepath.Join(n.StateDir, "history.jsonl")
	info, err := os.Stat(file)
	check.Must(t, err)
	check.Equal(t, "mode", info.Mode().Perm(), 0o600)
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0)
	check.Must(t, err)
	_, err = f.WriteString(`{"time":"2026-`)
	check.Must(t, err)
	check.Must(t, f.Close())
	s = n.Start(t, "--release-delay=1h")
	s.Release(t, both...)
	if out := n.Command(t, "release", "router", "--skip-release-delay"); out.ExitCode != 0 {
		t.Errorf("release of the owner in cooldown: %s", out.Stderr)
	}
	var events []struct {
		Event, Owner string
		Addresses    []string
	}
	read := func(args ...string) (got string) {
		out := n.Command(t, append(args, "-o=json", "--state-dir="+n.StateDir)...)
		check.Must(t, json.Unmarshal([]byte(out.Stdout), &events))
		for _, e := range events {
			got += fmt.Sprint(e.Event, " ", e.Owner, " ", e.Addresses, "\n")
		}
		return got
	}
	want := fmt.Sprintf("allocated router %[1]v\nreleased router %[1]v\nfreed router %[1]v\n", both)
	for _, args := range []string{"history", "history " + both[0], "history " + both[1], "history router"} {
		if got := read(strings.Fields(args)...); got != want {
			t.Errorf("%s: got\n%swant\n%s", args, got, want)
		}
	}
	if got := read("history", "10.15.0.200"); got != "" {
		t.Errorf("an address without a history has %s", got)
	}
}
