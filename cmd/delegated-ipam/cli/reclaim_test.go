package cli

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
	"github.com/delegated-ipam/delegated-ipam/internal/fleet/lostnodes"
)

func TestReclaimUsage(t *testing.T) {
	for name, c := range map[string]struct {
		args string
		want []string
	}{
		"no node":                   {"", []string{"--node", "--from", "expected one of them"}},
		"node and file":             {"--node=a --from=f --yes", []string{"expected one of them"}},
		"not confirmed":             {"--node=a", []string{"--yes-the-node-is-gone=a", "--dry-run"}},
		"another node confirmed":    {"--node=a --yes-the-node-is-gone=b", []string{"--yes-the-node-is-gone=a", `got "b"`}},
		"node confirmed by --yes":   {"--node=a --yes", []string{"--yes-the-node-is-gone to confirm --node"}},
		"file not confirmed":        {"--from=f", []string{"--yes", "--dry-run"}},
		"file confirmed by a name":  {"--from=f --yes-the-node-is-gone=a", []string{"--yes to confirm --from"}},
		"owners of a file":          {"--from=f --yes --owner=router", []string{"--owner is for --node"}},
		"report of a node":          {"--node=a --yes-the-node-is-gone=a --report=r", []string{"--report", "--from"}},
		"report of a dry run":       {"--from=f --dry-run --report=r", []string{"--report", "--dry-run"}},
		"negative generations":      {"--node=a --dry-run --generations=-1", []string{"--generations"}},
		"no owner":                  {"--node=a --dry-run --owner=", []string{"at least one owner"}},
		"numbers backwards":         {"--node=a --dry-run --owner=ciliumnode-7..3", []string{"ciliumnode-7..3", "FIRST..LAST"}},
		"argument":                  {"worker-7", []string{"expected no argument"}},
		"option of serve, no value": {"--node=a --dry-run --plugin-timeout=0s", []string{"--plugin-timeout"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := testDependencies(nil).exec(t, append([]string{"reclaim"}, strings.Fields(c.args)...)...)
			o.wants(t, cmdline.ExitUsage, "", c.want...)
		})
	}
}

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
			if err := lostnodes.Write(file, list); err != nil {
				t.Fatal(err)
			}
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
	equal(t, got, want)
}
