package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/delegated-ipam/delegated-ipam/internal/containerid"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/journal"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/statedir"
)

// firstSeeded is the address of the first seeded attachment; the subnet has room for 10,000 more.
const firstSeeded = "10.15.128.0"

// seed writes the files of host-local and the journal for count attachments: copies of a real one
// under other names. 10,000 real ADDs would take a quarter of an hour.
func (n *node) seed(count int) {
	template, lease := n.example()
	j, closeJournal := n.journal()
	defer closeJournal()
	ip := netip.MustParseAddr(firstSeeded)
	for i := range count {
		r := copyOf(template, fmt.Sprintf("default/seeded-%d", i), ip)
		text := strings.Replace(lease, template.ContainerID, r.ContainerID, 1)
		failIf(os.WriteFile(filepath.Join(n.store(), network, ip.String()), []byte(text), 0o600))
		failIf(j.Write(r))
		ip = ip.Next()
	}
}

// example allocates one real attachment, returns its record and the content of host-local's file,
// and removes both.
func (n *node) example() (attachment.Record, string) {
	s := n.daemon()
	s.allocate(owner)
	s.stop()
	j, closeJournal := n.journal()
	defer closeJournal()
	loaded := must(j.Load())
	if len(loaded.Records) != 1 {
		failIf(fmt.Errorf("the journal has %d records; want 1", len(loaded.Records)))
	}
	r := loaded.Records[0]
	file := filepath.Join(n.store(), network, r.Addrs()[0].String())
	lease := must(os.ReadFile(file))
	failIf(os.Remove(file))
	failIf(j.Remove(r.Pool, r.Owner))
	return r, string(lease)
}

// journal opens the journal of the node, whose daemon has stopped.
func (n *node) journal() (j *journal.Journal, closeJournal func()) {
	state := must(statedir.Lock(context.Background(), n.state(), statedir.Holder{}, nil))
	j = journal.Open(state, journal.Options{})
	return j, func() { j.Close(); failIf(state.Close()) }
}

// copyOf returns the record for another owner and address.
func copyOf(r attachment.Record, owner string, ip netip.Addr) attachment.Record {
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
