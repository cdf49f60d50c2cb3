package cli

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/doctor"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/history"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/journal"
	"github.com/delegated-ipam/delegated-ipam/internal/fleet/lostnodes"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// The page names each key that -o json prints: they are an interface.
func TestDocumentedKeys(t *testing.T) {
	page, err := os.ReadFile("../../../docs/reference/command-line.md")
	check.Must(t, err)
	for command, printed := range map[string][]any{
		"release": {released{}}, "id": {identified{}}, "history": {history.Event{}}, "holder": {holders{}}, "doctor": {doctor.Check{}},
		"profile list": {listedProfile{}}, "reclaim": {lostnodes.Target{}}, "list --summary`, `list --watch": {poolSummary{}, change{}},
		"journal list": {journal.Metadata{}, listedJournal{}, damagedRecord{}},
	} {
		_, row, _ := strings.Cut(string(page), "\n| `"+command+"` | ")
		row, _, _ = strings.Cut(row, "\n")
		for _, v := range printed {
			for _, field := range reflect.VisibleFields(reflect.TypeOf(v)) {
				key, _, _ := strings.Cut(field.Tag.Get("json"), ",")
				check.True(t, key == "" || strings.Contains(row, "`"+key+"`"), "the row of %s lacks the key %s", command, key)
			}
		}
	}
}
