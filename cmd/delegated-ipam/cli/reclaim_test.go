package cli

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
	"github.com/delegated-ipam/delegated-ipam/internal/fleet/lostnodes"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// A list that is too old, or of the future, is not evidence that a node was removed.
func TestReclaimListAge(t *testing.T) {
	for age, want := range map[time.Duration]string{
		0:                 "no CNI configuration", // the list is accepted
		maxListAge:        "no CNI configuration",
		maxListAge + 1:    "at most 15m0s old",
		-maxListAge - 1:   "at most 15m0s old",
		24 * time.Hour:    "at most 15m0s old",
		-10 * time.Minute: "no CNI configuration",
	} {
		t.Run(age.String(), func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "list.json")
			list := lostnodes.List{Time: noon().Add(-age), Nodes: []lostnodes.Node{{Name: "a", Owners: []string{"router"}}}}
			check.Must(t, lostnodes.Write(file, list))
			o := testDependencies(nil).exec(t, "reclaim", "--from="+file, "--yes", "--cni-conf-dir="+t.TempDir())
			o.wants(t, cmdline.ExitFailed, "", want)
		})
	}
}

func TestReclaimBadList(t *testing.T) {
	file := filepath.Join(t.TempDir(), "list.json")
	for text, want := range map[string]string{
		"":  "EOF",
		"{": "unexpected EOF",
		fmt.Sprintf(`{"time":%q,"names":[]}`, noon().Format(time.RFC3339)): "names",
	} {
		put(t, file, text)
		testDependencies(nil).exec(t, "reclaim", "--from="+file, "--yes").wants(t, cmdline.ExitFailed, "", want)
	}
}

func TestReclaimReport(t *testing.T) {
	result := func(node string, s lostnodes.State, err string) lostnodes.Result {
		return lostnodes.Result{Node: node, State: s, Error: err}
	}
	got := reportOf([]lostnodes.Node{{Name: "done"}, {Name: "failed"}, {Name: "begun"}, {Name: "late"}}, []lostnodes.Result{
		result("done", lostnodes.Released, ""), result("done", lostnodes.Released, ""),
		result("failed", lostnodes.Released, ""), result("failed", lostnodes.Failed, "first"), result("failed", lostnodes.Failed, "second"),
		result("begun", lostnodes.Released, ""), result("begun", lostnodes.NotTried, ""),
		result("late", lostnodes.NotTried, ""),
	})
	want := lostnodes.Report{Reclaimed: []string{"done"}, Failed: map[string]string{"failed": "first"}}
	check.Equal(t, "report", got, want)
}
