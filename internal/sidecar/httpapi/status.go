package httpapi

import (
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-openapi/runtime"
	"github.com/go-openapi/strfmt"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/engine"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

// brief returns the properties that Cilium has in a brief status (pkg/status, GetStatus), as far
// as they exist here.
func (r Report) brief() *models.StatusResponse {
	return &models.StatusResponse{Cilium: r.ciliumStatus(), Stale: r.staleConfigurations()}
}

// full returns the complete status.
func (r Report) full(node Addressing, defaultPool string, all iter.Seq[engine.Attachment]) *models.StatusResponse {
	stats := newAttachmentStats(defaultPool)
	for a := range all {
		stats.add(a)
	}
	out := r.brief()
	out.CniFile = r.cniFile()
	out.Ipam = stats.ipamStatus(node)
	out.DelegatedIpam = r.delegatedIPAM(stats)
	return out
}

// HealthState returns a handler of GET /healthz that responds with the state alone: Ok, Warning or
// Failure, without a message (docs/operate/security.md, What healthz shows).
func (a *API) HealthState() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status := models.Status{State: a.reporter.Report(r.Context()).ciliumStatus().State}
		w.Header().Set("Content-Type", runtime.JSONMime)
		if err := json.NewEncoder(w).Encode(models.StatusResponse{Cilium: &status}); err != nil {
			a.log.WithError(err).Debug("The state could not be sent")
		}
	})
}

// ciliumStatus returns the property cilium: Ok if the sidecar is ready, Failure if the
// configuration of a pool has an error, and otherwise Warning.
func (r Report) ciliumStatus() *models.Status {
	if r.Ready {
		return &models.Status{State: models.StatusStateOk, Msg: r.Version}
	}
	state := models.StatusStateWarning
	if slices.ContainsFunc(r.Pools, PoolReport.hasError) {
		state = models.StatusStateFailure
	}
	return &models.Status{State: state, Msg: r.Version + "    not ready: " + strings.Join(r.Reasons, "; ")}
}

func (p PoolReport) hasError() bool { return p.Error != "" }

// staleConfigurations returns the pools that still use an older configuration, and since when.
func (r Report) staleConfigurations() map[string]strfmt.DateTime {
	out := map[string]strfmt.DateTime{}
	for _, p := range r.Pools {
		if p.hasError() && p.Binary != "" {
			out["cni configuration of pool "+p.Pool] = strfmt.DateTime(p.Since)
		}
	}
	return out
}

// cniFile returns the state of the CNI configuration of all pools; nil if there is no pool.
func (r Report) cniFile() *models.Status {
	if len(r.Pools) == 0 {
		return nil
	}
	out := &models.Status{State: models.StatusStateOk}
	texts := make([]string, 0, len(r.Pools))
	for _, p := range r.Pools {
		if p.hasError() || p.File == "" {
			out.State = models.StatusStateFailure
		}
		texts = append(texts, fmt.Sprintf("pool %s: %s", p.Pool, cmp.Or(p.Error, p.File, "none found")))
	}
	out.Msg = strings.Join(texts, "; ")
	return out
}

// attachmentStats are the parts of the status that are computed from all attachments.
type attachmentStats struct {
	// defaultPool is the name of the default pool.
	defaultPool string
	// allocations are the owners by allocation key; ipv4 and ipv6 are the keys.
	allocations models.AllocationMap
	ipv4, ipv6  []string
	// states has the number of attachments in each state, also if it is 0.
	states map[string]int64
	// oldestRelease is the attachment that has waited longest for its DEL.
	oldestRelease *models.PendingRelease
}

func newAttachmentStats(defaultPool string) *attachmentStats {
	return &attachmentStats{
		defaultPool: defaultPool,
		allocations: models.AllocationMap{}, ipv4: []string{}, ipv6: []string{},
		states: map[string]int64{
			string(record.Adding): 0, string(record.Held): 0, string(record.Cooldown): 0, string(record.Releasing): 0,
		},
	}
}

func (s *attachmentStats) add(a engine.Attachment) {
	s.states[string(a.State)]++
	if a.State == record.Releasing && (s.oldestRelease == nil || a.Changed.Before(time.Time(s.oldestRelease.Since))) {
		s.oldestRelease = &models.PendingRelease{
			Owner: a.Owner, Pool: a.Pool, ContainerID: a.IDInUse(),
			Since: strfmt.DateTime(a.Changed), LastError: a.LastError,
		}
	}
	for _, f := range a.Claims {
		addr, ok := a.Address(f)
		if !ok {
			continue
		}
		key := s.allocationKey(a.Pool, addr.Addr().String())
		s.allocations[key] = a.Owner
		if f == record.IPv4 {
			s.ipv4 = append(s.ipv4, key)
		} else {
			s.ipv6 = append(s.ipv6, key)
		}
	}
}

// ipamStatus returns the allocations in the form of Cilium's IPAM (pkg/ipam, Dump).
func (s *attachmentStats) ipamStatus(node Addressing) *models.IPAMStatus {
	slices.Sort(s.ipv4)
	slices.Sort(s.ipv6)
	return &models.IPAMStatus{
		Allocations: s.allocations, IPv4: s.ipv4, IPv6: s.ipv6,
		Status: ipamText(node, len(s.ipv4), len(s.ipv6)),
	}
}

// allocationKey returns the address; outside of the default pool with the pool as its prefix, as
// in Cilium, because two pools may have the same address.
func (s *attachmentStats) allocationKey(pool, ip string) string {
	if pool == s.defaultPool {
		return ip
	}
	return pool + "/" + ip
}

// ipamText returns the number of allocations as text. Their maximum is known to the plugin only.
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
