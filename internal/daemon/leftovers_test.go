package daemon

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

// A lease under one of the daemon's IDs is released only if no attachment can have it.
func TestReleaseLease(t *testing.T) {
	const leak = "cilium-agent-gone-0123456789abcdef"
	c := valid(t)
	store := filepath.Join(filepath.Dir(c.SocketPath), "networks")
	write(t, c, "net.d/1.conflist", `{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"cilium-cni","ipam":{"type":"host-local",
		"dataDir":"`+store+`","ranges":[[{"subnet":"10.1.0.0/24"}]]}}]}`)
	write(t, c, "networks/net/10.1.0.77", leak+"\r\neth0")
	write(t, c, "networks/net/10.1.0.78", "0123abcd\r\neth0")
	write(t, c, "networks/net/10.1.0.79", "")
	stop := serving(t, c)
	defer func() { stop() }()
	api, err := client.New(c.SocketPath)
	check.Must(t, err)
	ctx := context.Background()
	if _, err = api.Allocate(ctx, "router", client.AllocateOptions{Family: client.IPv4}); err != nil {
		t.Fatal(err)
	}
	list, err := api.List(ctx)
	check.Must(t, err)
	held, own := list[0].Addresses[0].IP, list[0].ContainerID
	for name, tt := range map[string]struct {
		ip, id, pool string
		want         error
		text         string
	}{
		"of an attachment":      {held, own, "", client.ErrNotFound, "its owner has an attachment"},
		"another ID":            {held, leak, "", client.ErrNotFound, "there is none"},
		"no lease":              {"10.1.0.99", leak, "", client.ErrNotFound, "there is none"},
		"of a pod":              {"10.1.0.78", "0123abcd", "", client.ErrForbidden, "not an ID of the daemon"},
		"ahead of a pod":        {"10.1.0.77", "cilium-agent-warm-054bf46bb788-31f97e642eaa509d", "", client.ErrForbidden, "acquired ahead"},
		"not a lease":           {"10.1.0.79", leak, "", client.ErrFailed, "names no container ID"},
		"unknown pool":          {"10.1.0.77", leak, "blue", client.ErrNotFound, "blue"},
		"the leak as an answer": {"10.1.0.77", "", "", client.ErrNotFound, ""},
	} {
		err := api.Release(ctx, netip.MustParseAddr(tt.ip), client.ReleaseOptions{Pool: tt.pool, Lease: tt.id})
		if !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v; want %v", name, err, tt.want)
		}
		check.Error(t, err, tt.text)
	}
	write(t, c, "state/quarantine/x", "damaged")
	check.Error(t, api.Release(ctx, netip.MustParseAddr("10.1.0.77"), client.ReleaseOptions{Lease: leak}), "quarantine/ has 1 files")
	check.Must(t, os.Remove(filepath.Join(c.StateDir, "quarantine", "x")))
	check.NoError(t, api.Release(ctx, netip.MustParseAddr("10.1.0.77"), client.ReleaseOptions{Lease: leak}))
	check.Absent(t, filepath.Join(store, "net", "10.1.0.77"))
	if _, err := os.Stat(filepath.Join(store, "net", held)); err != nil {
		t.Error(err)
	}
}
