package attachment

import (
	"slices"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

func TestThePluginsOfRecordedAttachmentsAreListedOnce(t *testing.T) {
	recorded := func(pool string, state record.State, binaries ...string) *entry {
		rec := &record.Record{State: state}
		for _, b := range binaries {
			rec.Invocations = append(rec.Invocations, call.Invocation{Plugin: "host-local", Binary: b})
		}
		return &entry{key: key{pool: pool}, rec: rec}
	}
	e := &Engine{byOwner: map[key]*entry{
		{"default", "router"}:    recorded("default", record.Held, "/b/host-local"),
		{"default", "health"}:    recorded("default", record.Releasing, "/b/host-local", "/a/host-local"),
		{"blue", "router"}:       recorded("blue", record.Adding, "/a/host-local"),
		{"default", "tombstone"}: recorded("default", record.Tombstone, "/c/host-local"),
		{"default", "nothing"}:   {key: key{pool: "default"}},
	}}
	want := []PluginUse{
		{Pool: "blue", Plugin: "host-local", Binary: "/a/host-local"},
		{Pool: "default", Plugin: "host-local", Binary: "/a/host-local"},
		{Pool: "default", Plugin: "host-local", Binary: "/b/host-local"},
	}
	if got := e.Plugins(); !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
