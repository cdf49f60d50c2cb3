package harness

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// Request holds the parameters of an allocate; empty ones are omitted.
type Request struct {
	Owner, Pool, Family string
	// Expire sends the header expiration: true.
	Expire bool
}

// Family is the part of a response about one address family.
type Family struct {
	IP        string   `json:"ip"`
	Gateway   string   `json:"gateway"`
	CIDRs     []string `json:"cidrs"`
	MasterMAC string   `json:"master-mac"`
	// InterfaceNumber is a decimal number.
	InterfaceNumber string `json:"interface-number"`
	ExpirationUUID  string `json:"expiration-uuid"`
}

// Allocation is the response to an allocate.
type Allocation struct {
	Address struct {
		IPv4               string `json:"ipv4"`
		IPv6               string `json:"ipv6"`
		IPv4PoolName       string `json:"ipv4-pool-name"`
		IPv6PoolName       string `json:"ipv6-pool-name"`
		IPv4ExpirationUUID string `json:"ipv4-expiration-uuid"`
		IPv6ExpirationUUID string `json:"ipv6-expiration-uuid"`
	} `json:"address"`
	IPv4 *Family `json:"ipv4"`
	IPv6 *Family `json:"ipv6"`
}

// Addresses returns the addresses without prefix lengths, IPv4 first.
func (a Allocation) Addresses() []string {
	var all []string
	for _, ip := range []string{a.Address.IPv4, a.Address.IPv6} {
		if ip != "" {
			all = append(all, ip)
		}
	}
	return all
}

// Attachment is one object of GET /v1/ipam.
type Attachment struct {
	Owner       string `json:"owner"`
	Pool        string `json:"pool"`
	Network     string `json:"network"`
	ContainerID string `json:"container-id"`
	Interface   string `json:"interface"`
	State       string `json:"state"`
	Addresses   []struct {
		Family string     `json:"family"`
		IP     netip.Addr `json:"ip"`
	} `json:"addresses"`
	Claims     []string `json:"claims"`
	Range      string   `json:"range"`
	Expiration *struct {
		UUID     string    `json:"uuid"`
		Deadline time.Time `json:"deadline"`
	} `json:"expiration"`
	ReleaseAt time.Time `json:"release-at"`
	Lost      bool      `json:"lost"`
	LastError string    `json:"last-error"`
}

// TryAllocate sends an allocate and returns the response, regardless of its status.
func (c Client) TryAllocate(t testing.TB, r Request) Response {
	t.Helper()
	return c.Do(t, http.MethodPost, r.path(), r.header()...)
}

// AllocateConcurrently sends the requests concurrently and returns the responses in the
// order of the requests, regardless of their status.
func (c Client) AllocateConcurrently(t testing.TB, requests []Request) []Response {
	t.Helper()
	responses, errs := make([]Response, len(requests)), make([]error, len(requests))
	var wg sync.WaitGroup
	for i, r := range requests {
		wg.Go(func() { responses[i], errs[i] = c.Try(http.MethodPost, r.path(), r.header()...) })
	}
	wg.Wait()
	check.Must(t, errors.Join(errs...))
	return responses
}

func (r Request) path() string {
	query := url.Values{}
	for key, value := range map[string]string{"owner": r.Owner, "pool": r.Pool, "family": r.Family} {
		if value != "" {
			query.Set(key, value)
		}
	}
	return "/v1/ipam?" + query.Encode()
}

func (r Request) header() []string {
	if r.Expire {
		return []string{"expiration", "true"}
	}
	return nil
}

// Allocate sends an allocate that must succeed.
func (c Client) Allocate(t testing.TB, r Request) Allocation {
	t.Helper()
	return c.TryAllocate(t, r).Allocation(t)
}

// AllocateFor allocates for an owner, which must succeed, and returns the addresses.
func (c Client) AllocateFor(t testing.TB, owner string) []string {
	t.Helper()
	return c.Allocate(t, Request{Owner: owner}).Addresses()
}

// Allocation parses the response to an allocate, which must have succeeded.
func (r Response) Allocation(t testing.TB) Allocation {
	t.Helper()
	r.WantStatus(t, http.StatusCreated)
	var got Allocation
	if err := json.Unmarshal(r.Body, &got); err != nil {
		t.Fatalf("%s: %v", r, err)
	}
	return got
}

// TryRestore requests one address of the default pool.
func (c Client) TryRestore(t testing.TB, ip, owner string) Response {
	t.Helper()
	return c.Do(t, http.MethodPost, "/v1/ipam/"+url.PathEscape(ip)+"?owner="+url.QueryEscape(owner))
}

// TryRelease releases one address of the default pool.
func (c Client) TryRelease(t testing.TB, ip string) Response {
	t.Helper()
	return c.Do(t, http.MethodDelete, "/v1/ipam/"+url.PathEscape(ip))
}

// Release releases addresses of the default pool, which must succeed.
func (c Client) Release(t testing.TB, ips ...string) {
	t.Helper()
	for _, ip := range ips {
		c.TryRelease(t, ip).WantStatus(t, http.StatusOK)
	}
}

// List returns every attachment of the daemon.
func (c Client) List(t testing.TB) []Attachment {
	t.Helper()
	all, err := c.TryList()
	check.Must(t, err)
	return all
}

// TryList is List that returns the error. The daemon may be starting.
func (c Client) TryList() ([]Attachment, error) {
	response, err := c.Try(http.MethodGet, "/v1/ipam")
	if err != nil {
		return nil, err
	}
	var all []Attachment
	err = json.Unmarshal(response.Body, &all)
	if err != nil || response.Status != http.StatusOK {
		return nil, fmt.Errorf("GET /v1/ipam answered %s: %v", response, err)
	}
	return all, nil
}

// Attachment returns the attachment of an owner; nil if the list has none.
func (c Client) Attachment(t testing.TB, owner string) *Attachment {
	t.Helper()
	for _, a := range c.List(t) {
		if a.Owner == owner {
			return &a
		}
	}
	return nil
}

// Leases converts a list into leases for the oracle.
func Leases(list []Attachment) []oracle.Lease {
	var all []oracle.Lease
	for _, held := range Held(list) {
		all = append(all, held.Lease)
	}
	return all
}

// Held converts a list into held leases for the oracle.
func Held(list []Attachment) []oracle.Listed {
	var all []oracle.Listed
	for _, a := range list {
		for _, address := range a.Addresses {
			all = append(all, oracle.Listed{
				Lease: oracle.Lease{Network: a.Network, IP: address.IP, ContainerID: a.ContainerID, Interface: a.Interface},
				Owner: a.Owner, Claimed: slices.Contains(a.Claims, address.Family),
			})
		}
	}
	return all
}

// WantError fails the test unless the response has the status and its body contains each text.
func (r Response) WantError(t testing.TB, status int, texts ...string) {
	t.Helper()
	if r.Status != status {
		t.Errorf("answered %s; want status %d", r, status)
	}
	for _, text := range texts {
		if !strings.Contains(string(r.Body), text) {
			t.Errorf("answered %s; want it to contain %q", r, text)
		}
	}
}

// WantStatus fails the test immediately unless the response has the status.
func (r Response) WantStatus(t testing.TB, status int) {
	t.Helper()
	if r.Status != status {
		t.Fatalf("answered %s; want status %d", r, status)
	}
}
