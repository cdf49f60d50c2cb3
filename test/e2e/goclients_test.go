package e2e

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"testing"

	httptransport "github.com/go-openapi/runtime/client"
	"github.com/go-openapi/strfmt"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	generated "github.com/delegated-ipam/delegated-ipam/client"
	"github.com/delegated-ipam/delegated-ipam/client/ipam"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// unallocated is an address that no owner holds.
var unallocated = netip.MustParseAddr("10.15.0.200")

func TestGoClient(t *testing.T) {
	t.Parallel()
	ctx, n := t.Context(), nodeWith(t, harness.DualStack())
	s := n.Start(t)
	c, err := client.New(s.Socket)
	check.Must(t, err)
	first, err := c.Allocate(ctx, "pod", client.AllocateOptions{Expiration: true})
	if err != nil || first.Address.IPv4 == "" || first.Address.IPv6 == "" || first.IPv4.ExpirationUUID == "" || !first.HostAddressing.IPv4.Enabled {
		t.Fatalf("got %+v, %v; want a temporary address of each family", first, err)
	}
	ip := netip.MustParseAddr(first.Address.IPv4)
	if err := c.Restore(ctx, ip, "pod", client.RestoreOptions{}); err != nil {
		t.Error(err)
	}
	if err := c.Restore(ctx, ip, "other", client.RestoreOptions{}); !errors.Is(err, client.ErrExists) {
		t.Errorf("another owner gets %v; want ErrExists", err)
	}
	all, err := c.List(ctx)
	if err != nil || len(all) != 1 || all[0].Owner != "pod" || all[0].State != models.AttachmentStateHeld || all[0].Expiration != nil || len(client.Allocated(all[0])) != 2 {
		t.Errorf("got %+v, %v; want one held attachment without expiration", all, err)
	}
	response, err := c.Status(ctx)
	check.Must(t, err)
	if status := response.DelegatedIpam; !status.Ready || status.Attachments[models.AttachmentStateHeld] != 1 || len(status.Pools) != 1 || status.Pools[0].Plugin != "host-local" {
		t.Errorf("got %+v; want a ready daemon", status)
	}
	for _, ip := range client.Allocated(all[0]) {
		if err := c.Release(ctx, ip, client.ReleaseOptions{SkipReleaseDelay: true}); err != nil {
			t.Error(err)
		}
	}
	if err := c.Release(ctx, unallocated, client.ReleaseOptions{}); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("got %v; want ErrNotFound", err)
	}
	wantLeaseCount(t, n, 0)
}

func TestGeneratedClient(t *testing.T) {
	t.Parallel()
	ctx, n := t.Context(), nodeWith(t, harness.DualStack())
	s := n.Start(t)
	transport := httptransport.New(generated.DefaultHost, generated.DefaultBasePath, generated.DefaultSchemes)
	transport.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", s.Socket)
	}}
	c := generated.New(transport, strfmt.Default)
	owner, none := "pod", unallocated.String()
	created, err := c.Ipam.PostIpamContext(ctx, ipam.NewPostIpamParams().WithOwner(&owner))
	check.Must(t, err)
	address := created.Payload.Address
	other := "other"
	var exists *ipam.PostIpamIPExists
	if _, err := c.Ipam.PostIpamIPContext(ctx, ipam.NewPostIpamIPParams().WithIP(address.IPv4).WithOwner(&other)); !errors.As(err, &exists) {
		t.Errorf("another owner gets %v; want 409", err)
	}
	for _, ip := range []string{address.IPv4, address.IPv6} {
		if _, err := c.Ipam.DeleteIpamIPContext(ctx, ipam.NewDeleteIpamIPParams().WithIP(ip)); err != nil {
			t.Error(err)
		}
	}
	var notFound *ipam.DeleteIpamIPNotFound
	if _, err := c.Ipam.DeleteIpamIPContext(ctx, ipam.NewDeleteIpamIPParams().WithIP(none)); !errors.As(err, &notFound) {
		t.Errorf("got %v; want 404", err)
	}
	wantLeaseCount(t, n, 0)
}
