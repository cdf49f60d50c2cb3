package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/delegated-ipam/delegated-ipam/internal/containerid"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

// firstSeeded is the address of the first seeded attachment; the subnet has room for 10,000 more.
const firstSeeded = "10.15.128.0"

// seed writes the files of host-local and the journal for count attachments: copies of a real one
// under other names. 10,000 real ADDs would take a quarter of an hour.
func (n *node) seed(count int) error {
	template, lease, err := n.example()
	if err != nil {
		return err
	}
	j, err := journal.Open(n.state(), journal.Options{})
	if err != nil {
		return err
	}
	ip := netip.MustParseAddr(firstSeeded)
	for i := range count {
		r := copyOf(template, fmt.Sprintf("default/seeded-%d", i), ip)
		text := strings.Replace(lease, template.ContainerID, r.ContainerID, 1)
		err := os.WriteFile(filepath.Join(n.store(), network, ip.String()), []byte(text), 0o600)
		if err = errors.Join(err, j.Write(r)); err != nil {
			return errors.Join(err, j.Close())
		}
		ip = ip.Next()
	}
	return j.Close()
}

// example allocates one real attachment, returns its record and the content of host-local's file,
// and removes both.
func (n *node) example() (record.Record, string, error) {
	s, err := n.sidecar()
	if err != nil {
		return record.Record{}, "", err
	}
	_, _, err = s.allocate(owner)
	if err = errors.Join(err, s.stop()); err != nil {
		return record.Record{}, "", err
	}
	j, err := journal.Open(n.state(), journal.Options{})
	if err != nil {
		return record.Record{}, "", err
	}
	loaded, err := j.Load()
	if err == nil && len(loaded.Records) != 1 {
		err = fmt.Errorf("the journal has %d records; want 1", len(loaded.Records))
	}
	if err != nil {
		return record.Record{}, "", errors.Join(err, j.Close())
	}
	r := loaded.Records[0]
	file := filepath.Join(n.store(), network, r.Addrs()[0].String())
	lease, err := os.ReadFile(file)
	return r, string(lease), errors.Join(err, os.Remove(file), j.Remove(r.ContainerID), j.Close())
}

// copyOf returns the record for another owner and address.
func copyOf(r record.Record, owner string, ip netip.Addr) record.Record {
	before := r.Addrs()[0].String()
	r = r.Clone()
	r.Owner, r.ContainerID = owner, containerid.For(owner, r.Node, r.Network)
	r.Result.Addresses[0].Prefix = netip.PrefixFrom(ip, r.Result.Addresses[0].Prefix.Bits())
	c := &r.Invocations[0]
	c.ContainerID = r.ContainerID
	c.PrevResult = []byte(strings.Replace(string(c.PrevResult), before+"/", ip.String()+"/", 1))
	c.Config = slices.Clone(c.Config)
	return r
}
