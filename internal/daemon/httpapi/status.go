package httpapi

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-openapi/runtime"
	"github.com/go-openapi/strfmt"
	"github.com/go-openapi/swag/conv"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/engine"
)

// serveState responds to GET /healthz with the state alone: Ok, Warning or Failure, without a
// message.
func (a *API) serveState(w http.ResponseWriter, r *http.Request) {
	status := models.Status{State: ciliumStatus(a.Reporter.Report(r.Context(), "")).State}
	w.Header().Set("Content-Type", runtime.JSONMime)
	if err := json.NewEncoder(w).Encode(models.StatusResponse{Cilium: &status}); err != nil {
		logField(r.Context(), "error", clientClosed(err))
	}
}

// briefStatus returns the properties that Cilium has in a brief status (pkg/status, GetStatus) and
// that exist here.
func briefStatus(r *models.DelegatedIPAMStatus) *models.StatusResponse {
	out := &models.StatusResponse{Cilium: ciliumStatus(r), Stale: map[string]strfmt.DateTime{}}
	for _, p := range r.Pools {
		// The pool still uses an older configuration.
		if p.Error != "" && p.CniVersion != "" {
			out.Stale["cni configuration of pool "+p.Pool] = conv.Value(p.Since)
		}
	}
	return out
}

// ciliumStatus returns the property cilium: Ok if the daemon is ready, Failure if the
// configuration of a pool has an error, and otherwise Warning.
func ciliumStatus(r *models.DelegatedIPAMStatus) *models.Status {
	if r.Ready {
		return &models.Status{State: models.StatusStateOk, Msg: r.Version}
	}
	state := models.StatusStateWarning
	if slices.ContainsFunc(r.Pools, func(p *models.PoolStatus) bool { return p.Error != "" }) {
		state = models.StatusStateFailure
	}
	return &models.Status{State: state, Msg: r.Version + "    not ready: " + strings.Join(r.Reasons, "; ")}
}

// complete adds the other properties to a brief status: the report, and what is computed from all
// attachments.
func (h *handlers) complete(out *models.StatusResponse, r *models.DelegatedIPAMStatus) {
	out.CniFile = cniFile(r.Pools)
	out.DelegatedIpam = r
	// All states are present.
	r.Attachments = map[string]int64{
		string(attachment.Adding): 0, string(attachment.Held): 0, string(attachment.Cooldown): 0, string(attachment.Releasing): 0,
	}
	// As in Cilium's IPAM (pkg/ipam, Dump).
	out.Ipam = &models.IPAMStatus{Allocations: models.AllocationMap{}, IPv4: []string{}, IPv6: []string{}}
	for a := range h.Engine.All() {
		h.addAttachment(out, a)
	}
	slices.Sort(out.Ipam.IPv4)
	slices.Sort(out.Ipam.IPv6)
	// The plugin alone knows the maximum.
	var texts []string
	if h.Addressing.EnableIPv4 {
		texts = append(texts, fmt.Sprintf("IPv4: %d allocated", len(out.Ipam.IPv4)))
	}
	if h.Addressing.EnableIPv6 {
		texts = append(texts, fmt.Sprintf("IPv6: %d allocated", len(out.Ipam.IPv6)))
	}
	out.Ipam.Status = strings.Join(texts, ", ")
}

func (h *handlers) addAttachment(out *models.StatusResponse, a engine.Attachment) {
	r := out.DelegatedIpam
	r.Attachments[string(a.State)]++
	if p := r.OldestPendingRelease; a.State == attachment.Releasing && (p == nil || a.Changed.Before(time.Time(p.Since))) {
		r.OldestPendingRelease = &models.PendingRelease{
			Owner: a.Owner, Pool: a.Pool, ContainerID: a.IDInUse(),
			Since: strfmt.DateTime(a.Changed), LastError: a.LastError,
		}
	}
	for _, f := range a.Claims {
		addr, ok := a.Address(f)
		if !ok {
			continue
		}
		key := addr.Addr().String()
		if a.Pool != h.DefaultPool {
			key = a.Pool + "/" + key // as in Cilium: two pools may have the same address
		}
		out.Ipam.Allocations[key] = a.Owner
		if f == attachment.IPv4 {
			out.Ipam.IPv4 = append(out.Ipam.IPv4, key)
		} else {
			out.Ipam.IPv6 = append(out.Ipam.IPv6, key)
		}
	}
}

// cniFile returns the state of the CNI configuration of all pools; nil if there is no pool.
func cniFile(pools []*models.PoolStatus) *models.Status {
	if len(pools) == 0 {
		return nil
	}
	out := &models.Status{State: models.StatusStateOk}
	texts := make([]string, 0, len(pools))
	for _, p := range pools {
		if p.Error != "" || p.File == "" {
			out.State = models.StatusStateFailure
		}
		texts = append(texts, fmt.Sprintf("pool %s: %s", p.Pool, cmp.Or(p.Error, p.File, "none found")))
	}
	out.Msg = strings.Join(texts, "; ")
	return out
}
