package restapi

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/go-openapi/strfmt"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/pkg/attachment"
	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

// brief is what Cilium keeps of its status for `cilium-dbg status --brief`
// (pkg/status, GetStatus), as far as there is such a thing here.
func (r Report) brief() *models.StatusResponse {
	return &models.StatusResponse{Cilium: r.overall(), Stale: r.stale()}
}

// full is the whole status.
func (r Report) full(node Addressing, all iter.Seq[attachment.Attachment]) *models.StatusResponse {
	c := newCensus()
	for a := range all {
		c.add(a)
	}
	out := r.brief()
	out.CniFile = r.cniFile()
	out.Ipam = c.ipamStatus(node)
	out.DelegatedIpam = r.extension(c)
	return out
}

// overall is Ok when ready, Failure when a pool's configuration stands in the
// way, and Warning while something is only awaited.
func (r Report) overall() *models.Status {
	if r.Ready {
		return &models.Status{State: models.StatusStateOk, Msg: r.Version}
	}
	state := models.StatusStateWarning
	if slices.ContainsFunc(r.Pools, PoolReport.broken) {
		state = models.StatusStateFailure
	}
	return &models.Status{State: state, Msg: r.Version + "    not ready: " + strings.Join(r.Reasons, "; ")}
}

func (p PoolReport) broken() bool { return p.Error != "" }

// stale names the pools that still use an older configuration, with the time
// since when.
func (r Report) stale() map[string]strfmt.DateTime {
	out := map[string]strfmt.DateTime{}
	for _, p := range r.Pools {
		if p.broken() && p.Binary != "" {
			out["cni configuration of pool "+p.Pool] = strfmt.DateTime(p.Since)
		}
	}
	return out
}

// cniFile is the state of the CNI configuration over all pools; nil if no pool is known.
func (r Report) cniFile() *models.Status {
	if len(r.Pools) == 0 {
		return nil
	}
	out := &models.Status{State: models.StatusStateOk}
	texts := make([]string, 0, len(r.Pools))
	for _, p := range r.Pools {
		if p.broken() || p.File == "" {
			out.State = models.StatusStateFailure
		}
		texts = append(texts, fmt.Sprintf("pool %s: %s", p.Pool, cmp.Or(p.Error, p.File, "none found")))
	}
	out.Msg = strings.Join(texts, "; ")
	return out
}

// census is what the status says of all attachments.
type census struct {
	// allocations are the owners by allocation key, and ipv4 and ipv6 those keys.
	allocations models.AllocationMap
	ipv4, ipv6  []string
	// states counts the attachments in each state, those without any as 0.
	states map[string]int64
	// oldest is the attachment whose release has waited longest for its DEL.
	oldest *models.PendingRelease
}

func newCensus() *census {
	return &census{
		allocations: models.AllocationMap{}, ipv4: []string{}, ipv6: []string{},
		states: map[string]int64{
			string(record.Adding): 0, string(record.Held): 0, string(record.Cooldown): 0, string(record.Releasing): 0,
		},
	}
}

func (c *census) add(a attachment.Attachment) {
	c.states[string(a.State)]++
	if a.State == record.Releasing && (c.oldest == nil || a.Changed.Before(time.Time(c.oldest.Since))) {
		c.oldest = &models.PendingRelease{
			Owner: a.Owner, Pool: a.Pool, ContainerID: a.ContainerID,
			Since: strfmt.DateTime(a.Changed), LastError: a.LastError,
		}
	}
	for _, f := range a.Claims {
		at, ok := a.Address(f)
		if !ok {
			continue
		}
		key := allocationKey(a.Pool, at.Addr().String())
		c.allocations[key] = a.Owner
		if f == record.IPv4 {
			c.ipv4 = append(c.ipv4, key)
		} else {
			c.ipv6 = append(c.ipv6, key)
		}
	}
}

// ipamStatus lists what is handed out as Cilium's IPAM does (pkg/ipam, Dump).
func (c *census) ipamStatus(node Addressing) *models.IPAMStatus {
	slices.Sort(c.ipv4)
	slices.Sort(c.ipv6)
	return &models.IPAMStatus{
		Allocations: c.allocations, IPv4: c.ipv4, IPv6: c.ipv6,
		Status: ipamText(node, len(c.ipv4), len(c.ipv6)),
	}
}

// allocationKey puts another pool's name before the address, as Cilium does,
// because two pools may have the same address.
func allocationKey(pool, ip string) string {
	if pool == attachment.DefaultPool {
		return ip
	}
	return pool + "/" + ip
}

// ipamText counts what is handed out. How much there is in all only the plugin knows.
func ipamText(node Addressing, v4, v6 int) string {
	var texts []string
	if node.EnableIPv4 {
		texts = append(texts, fmt.Sprintf("IPv4: %d allocated", v4))
	}
	if node.EnableIPv6 {
		texts = append(texts, fmt.Sprintf("IPv6: %d allocated", v6))
	}
	return strings.Join(texts, ", ")
}
