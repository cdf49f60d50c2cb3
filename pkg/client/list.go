package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"time"
)

// State is the state of an [Attachment].
type State string

// The states of an attachment.
const (
	// StateAdding: the plugin's ADD runs, or ran and may have allocated.
	StateAdding State = "adding"
	// StateHeld: the plugin holds the addresses for the owner.
	StateHeld State = "held"
	// StateCooldown: released; the plugin gets the addresses back later.
	StateCooldown State = "cooldown"
	// StateReleasing: the plugin has not confirmed the release.
	StateReleasing State = "releasing"
)

// Range is a position of addresses, compared with ranges.
type Range string

const (
	// RangeOutside: an address is outside. It is not allocated any more.
	RangeOutside Range = "outside"
	// RangeUnconfigured: the pool has no CNI configuration now.
	RangeUnconfigured Range = "unconfigured"
)

// Attachment is what one owner holds in one pool: one container ID, and the addresses of one ADD.
type Attachment struct {
	// Owner is the owner, Pool the pool. Together they identify the attachment.
	Owner string `json:"owner"`
	Pool  string `json:"pool"`
	// Network is the CNI network whose plugin allocated the addresses.
	Network string `json:"network"`
	// Node is the name of the node when the attachment was created.
	Node string `json:"node"`
	// ContainerID and Interface are CNI_CONTAINERID and CNI_IFNAME of the plugin calls.
	ContainerID string `json:"container-id"`
	Interface   string `json:"interface"`
	// State is the present state.
	State State `json:"state"`
	// Addresses are all addresses that the plugin returned.
	Addresses []Address `json:"addresses"`
	// Claims are the families that are allocated and not released. Of several addresses of one
	// family the last one is allocated.
	Claims []Family `json:"claims"`
	// Expiration is set while the attachment is temporary; nil if it is confirmed.
	Expiration *Expiration `json:"expiration"`
	// ReleaseAt is when an attachment in StateCooldown is returned to the plugin; otherwise zero.
	ReleaseAt time.Time `json:"release-at"`
	// Created is when it was created, Changed when its state last changed.
	Created time.Time `json:"created"`
	Changed time.Time `json:"changed"`
	// Verified is when the plugin last confirmed it, and LastUsed when a request last asked for it;
	// zero if that has not happened since the sidecar started.
	Verified time.Time `json:"verified"`
	LastUsed time.Time `json:"last-used"`
	// Lost reports whether the plugin denies that it holds the addresses.
	Lost bool `json:"lost"`
	// LastError is the last failure of work on the attachment; empty after a success.
	LastError string `json:"last-error"`
	// Excluded reports whether the attachment keeps an address of serve --exclude-addresses from
	// being allocated. No client has its addresses.
	Excluded bool `json:"excluded"`
	// Range is where the addresses are, compared with the ranges from which the plugin allocates now;
	// empty if they are inside, or if the ranges are not known.
	Range Range `json:"range"`
	// Raw is the JSON of the attachment: Attachment of swagger.yaml.
	Raw json.RawMessage `json:"-"`
}

// Address is one address of an [Attachment].
type Address struct {
	// Family is its family.
	Family Family `json:"family"`
	// IP is the address.
	IP netip.Addr `json:"ip"`
	// Prefix is the address with the prefix length of its subnet.
	Prefix netip.Prefix `json:"prefix"`
	// Gateway is the gateway that the plugin returned; the zero Addr if it returned none.
	Gateway netip.Addr `json:"gateway"`
}

// Expiration is the deadline of a temporary attachment.
type Expiration struct {
	// UUID is [AllocatedAddress.ExpirationUUID] of its allocation.
	UUID string `json:"uuid"`
	// Deadline is when it is released unless it is confirmed.
	Deadline time.Time `json:"deadline"`
}

// Allocated returns the allocated addresses, at most one of each family, IPv4 first.
func (a *Attachment) Allocated() []netip.Addr {
	last := map[Family]netip.Addr{}
	for _, at := range a.Addresses {
		last[at.Family] = at.IP
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

// List returns every attachment of every pool, sorted by pool and owner. Each is as it was when the
// sidecar encoded it: one that is created or released while the list is sent may be missing.
//
// Errors: [ErrForbidden], [ErrNotSidecar], and those of the connection.
func (c *Client) List(ctx context.Context) ([]Attachment, error) {
	var all []Attachment
	err := c.send(ctx, request{method: http.MethodGet, path: "/ipam"}, func(body io.Reader) error {
		var err error
		all, err = decodeList(body)
		return err
	})
	// cilium-agent has the path, but not this method.
	var refused *Error
	if errors.As(err, &refused) && slices.Contains([]int{http.StatusNotFound, http.StatusMethodNotAllowed}, refused.StatusCode) {
		err = c.failed(notSidecar("no list of attachments: %w", err))
	}
	return all, err
}

// decodeList decodes an array element by element, so that only one is in memory twice.
func decodeList(body io.Reader) ([]Attachment, error) {
	d := json.NewDecoder(body)
	opening, err := d.Token()
	if err != nil {
		return nil, err
	}
	if opening != json.Delim('[') {
		return nil, notSidecar("the list of attachments is not an array")
	}
	all := []Attachment{}
	for d.More() {
		var a Attachment
		if err := d.Decode(&a.Raw); err != nil {
			return nil, err
		}
		if err := a.decode(); err != nil {
			return nil, err
		}
		all = append(all, a)
	}
	_, err = d.Token()
	return all, err
}

// decode fills in the fields from Raw.
func (a *Attachment) decode() error {
	if bytes.Equal(a.Raw, []byte("null")) {
		return notSidecar("an attachment is null")
	}
	if err := json.Unmarshal(a.Raw, a); err != nil {
		return fmt.Errorf("attachment %q: %w", a.Owner, err)
	}
	for _, at := range a.Addresses {
		if !at.IP.IsValid() {
			return notSidecar("attachment %q has an address without an IP", a.Owner)
		}
	}
	return nil
}
