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
			list := lostnodes.List{Time: noon().Add(-age), Targets: lostnodes.Targets("a", []string{"router"}, []string{"pods"}, 0)}
			check.Must(t, list.Write(file))
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
