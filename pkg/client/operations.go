package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"

	"github.com/delegated-ipam/delegated-ipam/api/models"
)

// The address families.
const (
	IPv4 = models.AttachmentAddressFamilyIPv4
	IPv6 = models.AttachmentAddressFamilyIPv6
)

// AllocateOptions are the optional parameters of [Client.Allocate].
type AllocateOptions struct {
	// Family is the one family to allocate. If it is empty, each family is allocated that the daemon
	// serves and the plugin returns.
	Family string
	// Pool is the pool to allocate from; [DefaultPool] if it is empty.
	Pool string
	// Expiration makes the allocation temporary: it is released after serve --ipam-expiration unless
	// [Client.Restore], or Allocate without Expiration, confirms it before.
	Expiration bool
}

// Allocate allocates the addresses of an owner, one of each family asked for; Address in the result
// is not nil. An owner that holds addresses in the pool gets the same ones again. An owner is at
// most 512 bytes without control characters, such as "router" or "namespace/pod"; if it is empty,
// the daemon generates one.
//
// Errors: [ErrInvalid], [ErrForbidden], [ErrFailed] (the plugin has no address or cannot be run,
// the pool is unknown, the family is disabled, …), [ErrRetryLater], and errors of the connection.
func (c *Client) Allocate(ctx context.Context, owner string, o AllocateOptions) (*models.IPAMResponse, error) {
	r := request{
		method: http.MethodPost, path: "/ipam",
		query: parameters("owner", owner, "family", o.Family, "pool", o.Pool),
	}
	if o.Expiration {
		r.header, r.value = "expiration", "true"
	}
	a := &models.IPAMResponse{}
	if err := c.send(ctx, r, a); err != nil {
		return nil, err
	}
	if a.Address == nil || a.Address.IPv4 == "" && a.Address.IPv6 == "" {
		return nil, c.failed(notDaemon("an allocation without an address"))
	}
	for _, ip := range []string{a.Address.IPv4, a.Address.IPv6} {
		if _, err := netip.ParseAddr(ip); err != nil && ip != "" {
			return nil, c.failed(err)
		}
	}
	return a, nil
}

// RestoreOptions are the optional parameters of [Client.Restore].
type RestoreOptions struct {
	// Pool is the pool of the address; [DefaultPool] if it is empty.
	Pool string
	// Also is the address of the other family that the owner had, if there is one. If the owner
	// holds nothing, both are requested of the plugin in one call, because a plugin that is asked for
	// one address may return any of the other family. Restore does not fail without it.
	Also netip.Addr
}

// Restore allocates exactly this address to an owner, or fails. It succeeds if the owner holds the
// address already, and confirms it if it is temporary. ip has no zone; owner is as in
// [Client.Allocate].
//
// Errors: [ErrInvalid], [ErrForbidden], [ErrExists], [ErrFamilyDisabled], [ErrFailed] (the owner
// holds another address, the plugin does not give this one, the pool is unknown, …),
// [ErrRetryLater], and errors of the connection.
func (c *Client) Restore(ctx context.Context, ip netip.Addr, owner string, o RestoreOptions) error {
	also := ""
	if o.Also.IsValid() {
		also = o.Also.String()
	}
	return c.send(ctx, request{
		method: http.MethodPost, path: addressPath(ip),
		query: parameters("owner", owner, "pool", o.Pool, "also", also),
	}, nil)
}

// ReleaseOptions are the optional parameters of [Client.Release].
type ReleaseOptions struct {
	// Pool is the pool of the address, the only one that is searched; [DefaultPool] if it is empty.
	Pool string
	// Owner is the owner of the address: it is not released if another one has it, which may have got it since it was
	// listed. Empty for any.
	Owner string
	// SkipReleaseDelay returns the address to the plugin immediately, whatever serve --release-delay
	// is, also if it was released before and is in cooldown.
	SkipReleaseDelay bool
	// Lease is the container ID of a leak, a lease in the store of host-local that is the daemon's and that no attachment
	// has (`delegated-ipam doctor`): only such a lease of the address is released. Empty to release an allocated address.
	Lease string
}

// Release releases an address. The plugin gets it back when no family of the owner's attachment is
// allocated any more: immediately, or after serve --release-delay. It is not checked whether the
// address is in use. ip has no zone.
//
// Errors: [ErrInvalid], [ErrForbidden], [ErrNotFound], [ErrFamilyDisabled], [ErrFailed] (the
// plugin's DEL failed; the daemon repeats it, and a second Release tries immediately),
// [ErrRetryLater], and errors of the connection.
func (c *Client) Release(ctx context.Context, ip netip.Addr, o ReleaseOptions) error {
	r := request{method: http.MethodDelete, path: addressPath(ip), query: parameters("pool", o.Pool, "owner", o.Owner, "lease", o.Lease)}
	if o.SkipReleaseDelay {
		r.header, r.value = "skip-release-delay", "true"
	}
	return c.send(ctx, r, nil)
}

// ReleaseOwner releases every address of an owner in a pool, as [Client.Release] does, and returns them. It continues
// after an error. What the owner allocates meanwhile stays.
//
// Errors: those of [Client.Release] and [Client.List], joined, and [ErrNotFound] if the owner has no address in the pool
// that can be released.
func (c *Client) ReleaseOwner(ctx context.Context, owner string, o ReleaseOptions) (released []netip.Addr, err error) {
	if o.Pool == "" || o.Pool == DefaultPool {
		if o.Pool, err = c.defaultPool(ctx); err != nil {
			return nil, err
		}
	}
	o.Owner = owner
	all, err := c.List(ctx)
	for _, a := range all {
		if a.Owner != owner || a.Pool != o.Pool {
			continue
		}
		for _, ip := range Releasable(a, o.SkipReleaseDelay) {
			switch failed := c.Release(ctx, ip, o); {
			case failed == nil:
				released = append(released, ip)
			case !errors.Is(failed, ErrNotFound): // it was released meanwhile
				err = errors.Join(err, fmt.Errorf("%s: %w", ip, failed))
			}
		}
	}
	if len(released) == 0 && err == nil {
		err = fmt.Errorf("%w: owner %q has no address in pool %q that can be released", ErrNotFound, owner, o.Pool)
	}
	return released, err
}

// defaultPool returns the name of the default pool in the list.
func (c *Client) defaultPool(ctx context.Context) (string, error) {
	status, err := c.Status(ctx)
	if err != nil {
		return "", err
	}
	for _, o := range status.DelegatedIpam.Options {
		if o.Name == "ipam-default-ip-pool" {
			return o.Value, nil
		}
	}
	return DefaultPool, nil
}

// Releasable returns the addresses of a listed attachment that [Client.Release] releases: the allocated ones, those that
// were given up, and one address of an attachment that is being released or, with skipDelay, that is in cooldown.
func Releasable(a *models.Attachment, skipDelay bool) []netip.Addr {
	again := a.State == models.AttachmentStateReleasing || skipDelay && a.State == models.AttachmentStateCooldown
	var texts []string
	for _, at := range a.Addresses {
		if again && len(texts) == 0 || !again && slices.Contains(a.Claims, at.Family) {
			texts = append(texts, at.IP)
		}
	}
	var ips []netip.Addr
	for _, text := range append(texts, a.GivenUp...) {
		ip, _ := netip.ParseAddr(text) // List has checked it
		ips = append(ips, ip)
	}
	return ips
}

// List returns every attachment of every pool, sorted by pool and owner. Each is as it was when the
// daemon encoded it: one that is created or released while the list is sent may be missing. No
// pointer is nil, and every IP is an address.
//
// Errors: [ErrForbidden], [ErrNotDaemon], and errors of the connection.
func (c *Client) List(ctx context.Context) ([]*models.Attachment, error) {
	var all []*models.Attachment
	err := c.send(ctx, request{method: http.MethodGet, path: "/ipam"}, &all)
	// cilium-agent has the path, but not this method.
	if refused, ok := errors.AsType[*Error](err); ok && slices.Contains([]int{http.StatusNotFound, http.StatusMethodNotAllowed}, refused.StatusCode) {
		err = c.failed(notDaemon("no list of attachments: %w", err))
	}
	if err != nil {
		return nil, err
	}
	if all == nil {
		return nil, c.failed(notDaemon("the list of attachments is null"))
	}
	for _, a := range all {
		if err := checkAttachment(a); err != nil {
			return nil, c.failed(err)
		}
	}
	return all, nil
}

func checkAttachment(a *models.Attachment) error {
	if a == nil {
		return notDaemon("an attachment is null")
	}
	for _, at := range a.Addresses {
		if at == nil || at.IP == "" {
			return notDaemon("attachment %q has an address without an IP", a.Owner)
		}
		if _, err := netip.ParseAddr(at.IP); err != nil {
			return fmt.Errorf("attachment %q: %w", a.Owner, err)
		}
	}
	for _, ip := range a.GivenUp {
		if _, err := netip.ParseAddr(ip); err != nil {
			return fmt.Errorf("attachment %q: %w", a.Owner, err)
		}
	}
	return nil
}

// Allocated returns the allocated addresses of a listed attachment, at most one of each family,
// IPv4 first. Of several addresses of one family the plugin's last one is allocated.
func Allocated(a *models.Attachment) []netip.Addr {
	last := map[string]netip.Addr{}
	for _, at := range a.Addresses {
		last[at.Family], _ = netip.ParseAddr(at.IP) // List has checked it
	}
	var ips []netip.Addr
	for _, family := range a.Claims {
		if ip, ok := last[family]; ok {
			ips = append(ips, ip)
		}
	}
	slices.SortFunc(ips, netip.Addr.Compare)
	return ips
}

// Status returns the state of the daemon (GET /healthz); DelegatedIpam in it is not nil, and no
// list in that has a nil pointer. The daemon responds within half a second, also if the plugin or
// the disk hangs. Every process that can open the socket may ask, unless the daemon runs with
// --health-details=authorized.
//
// Errors: [ErrForbidden], [ErrNotDaemon], and errors of the connection. A daemon that is not ready
// is not an error.
func (c *Client) Status(ctx context.Context) (*models.StatusResponse, error) {
	s := &models.StatusResponse{}
	if err := c.send(ctx, request{method: http.MethodGet, path: "/healthz"}, s); err != nil {
		return nil, err
	}
	own := s.DelegatedIpam
	if own == nil && s.Ipam == nil && s.Cilium != nil && s.Cilium.Msg == "" { // cilium-agent's status has both
		return nil, c.failed(fmt.Errorf("%w: it is %s, and shows the details of its status to authorized callers only (--health-details)", ErrForbidden, s.Cilium.State))
	}
	if own == nil {
		return nil, c.failed(notDaemon(`the status has no part "delegated-ipam"`))
	}
	addresses := func(p *models.PoolStatus) bool { return p != nil && slices.Contains(p.Addresses, nil) }
	if slices.Contains(own.Pools, nil) || slices.ContainsFunc(own.Pools, addresses) || slices.Contains(own.Quarantined, nil) || slices.Contains(own.Options, nil) || slices.Contains(own.MovedPlugins, nil) {
		return nil, c.failed(notDaemon("an element of the status is null"))
	}
	return s, nil
}

// BriefStatus returns only the parts of [Client.Status] that Cilium's agent has, too, which cost
// the daemon less. Each part may be nil.
func (c *Client) BriefStatus(ctx context.Context) (*models.StatusResponse, error) {
	s := &models.StatusResponse{}
	if err := c.send(ctx, request{method: http.MethodGet, path: "/healthz", header: "brief", value: "true"}, s); err != nil {
		return nil, err
	}
	return s, nil
}

// Ping sends a request (GET /config) for which the daemon waits neither for the plugin nor for the
// disk nor for another request. An *[Error] shows that a process responds, too.
func (c *Client) Ping(ctx context.Context) error {
	return c.send(ctx, request{method: http.MethodGet, path: "/config"}, nil)
}

// Families returns the address families that the daemon serves, "ipv4" and "ipv6" (GET /config).
//
// Errors: [ErrNotDaemon], and errors of the connection.
func (c *Client) Families(ctx context.Context) ([]string, error) {
	config := &models.DaemonConfiguration{}
	if err := c.send(ctx, request{method: http.MethodGet, path: "/config"}, config); err != nil {
		return nil, err
	}
	if config.Status == nil || config.Status.Addressing == nil {
		return nil, c.failed(notDaemon("the configuration has no addressing"))
	}
	var families []string
	for family, a := range map[string]*models.NodeAddressingElement{"ipv4": config.Status.Addressing.IPv4, "ipv6": config.Status.Addressing.IPv6} {
		if a != nil && a.Enabled {
			families = append(families, family)
		}
	}
	slices.Sort(families)
	return families, nil
}

// addressPath is the path of the operations on one address. An invalid one is left to the daemon.
func addressPath(ip netip.Addr) string { return "/ipam/" + url.PathEscape(ip.String()) }

// parameters returns a query of the values that are not empty; the daemon has a default for each.
func parameters(nameValues ...string) url.Values {
	q := url.Values{}
	for i := 0; i+1 < len(nameValues); i += 2 {
		if nameValues[i+1] != "" {
			q.Set(nameValues[i], nameValues[i+1])
		}
	}
	return q
}
