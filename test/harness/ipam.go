package harness

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// Request is the parameters of an allocate; empty ones are left out.
type Request struct {
	Owner, Pool, Family string
	// Expire sends the header expiration: true.
	Expire bool
}

// Family is what an answer says of one family.
type Family struct {
	IP        string   `json:"ip"`
	Gateway   string   `json:"gateway"`
	CIDRs     []string `json:"cidrs"`
	MasterMAC string   `json:"master-mac"`
	// InterfaceNumber is a number as text.
	InterfaceNumber string `json:"interface-number"`
	ExpirationUUID  string `json:"expiration-uuid"`
}

// Allocation is the answer to an allocate.
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

// Addresses returns the bare addresses of the answer, IPv4 first.
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
	Expiration *struct {
		UUID     string    `json:"uuid"`
		Deadline time.Time `json:"deadline"`
	} `json:"expiration"`
	ReleaseAt time.Time `json:"release-at"`
	Lost      bool      `json:"lost"`
	LastError string    `json:"last-error"`
}

// TryAllocate sends an allocate and returns the answer whatever it is.
func (c Client) TryAllocate(t testing.TB, r Request) Answer {
	t.Helper()
	return c.Do(t, http.MethodPost, r.path(), r.header()...)
}

// AllocateAtOnce sends every request at the same time and returns the answers
// in the order of the requests, whatever they are.
func (c Client) AllocateAtOnce(t testing.TB, requests []Request) []Answer {
	t.Helper()
	answers, errs := make([]Answer, len(requests)), make([]error, len(requests))
	var wg sync.WaitGroup
	for i, r := range requests {
		wg.Go(func() { answers[i], errs[i] = c.Try(http.MethodPost, r.path(), r.header()...) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return answers
}

func (r Request) path() string {
	q := url.Values{}
	for key, value := range map[string]string{"owner": r.Owner, "pool": r.Pool, "family": r.Family} {
		if value != "" {
			q.Set(key, value)
		}
	}
	return "/v1/ipam?" + q.Encode()
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

// Allocation reads the answer to an allocate, which must have succeeded.
func (a Answer) Allocation(t testing.TB) Allocation {
	t.Helper()
	a.Want(t, http.StatusCreated)
	var got Allocation
	if err := json.Unmarshal(a.Body, &got); err != nil {
		t.Fatalf("%s: %v", a, err)
	}
	return got
}

// TryRestore asks for one address of the default pool.
func (c Client) TryRestore(t testing.TB, ip, owner string) Answer {
	t.Helper()
	return c.Do(t, http.MethodPost, "/v1/ipam/"+url.PathEscape(ip)+"?owner="+url.QueryEscape(owner))
}

// TryRelease gives one address of the default pool back.
func (c Client) TryRelease(t testing.TB, ip string) Answer {
	t.Helper()
	return c.Do(t, http.MethodDelete, "/v1/ipam/"+url.PathEscape(ip))
}

// Release gives addresses of the default pool back, which must succeed.
func (c Client) Release(t testing.TB, ips ...string) {
	t.Helper()
	for _, ip := range ips {
		c.TryRelease(t, ip).Want(t, http.StatusOK)
	}
}

// List returns every attachment that the sidecar knows.
func (c Client) List(t testing.TB) []Attachment {
	t.Helper()
	a := c.Do(t, http.MethodGet, "/v1/ipam")
	a.Want(t, http.StatusOK)
	var all []Attachment
	if err := json.Unmarshal(a.Body, &all); err != nil {
		t.Fatalf("%s: %v", a, err)
	}
	return all
}

// Of returns the attachment of an owner in the list; nil if there is none.
func (c Client) Of(t testing.TB, owner string) *Attachment {
	t.Helper()
	for _, a := range c.List(t) {
		if a.Owner == owner {
			return &a
		}
	}
	return nil
}

// Leases turns a list into leases for the oracle.
func Leases(list []Attachment) []oracle.Lease {
	var all []oracle.Lease
	for _, a := range list {
		for _, address := range a.Addresses {
			all = append(all, oracle.Lease{
				Network: a.Network, IP: address.IP, ContainerID: a.ContainerID, Interface: a.Interface,
			})
		}
	}
	return all
}

// HeldOf turns a list into what the oracle judges.
func HeldOf(list []Attachment) []oracle.Held {
	var all []oracle.Held
	for _, a := range list {
		for _, address := range a.Addresses {
			all = append(all, oracle.Held{
				Lease: oracle.Lease{Network: a.Network, IP: address.IP, ContainerID: a.ContainerID, Interface: a.Interface},
				Owner: a.Owner, Claimed: slices.Contains(a.Claims, address.Family),
			})
		}
	}
	return all
}

// Want fails the test unless the answer has the status.
func (a Answer) Want(t testing.TB, status int) {
	t.Helper()
	if a.Status != status {
		t.Fatalf("answered %s; want status %d", a, status)
	}
}
