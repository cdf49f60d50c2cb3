package restapi

import (
	"encoding/json"

	"github.com/go-openapi/strfmt"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/pkg/attachment"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/profile"
	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

// extension is the property delegated-ipam of the status.
func (r Report) extension(all []attachment.Attachment) *models.DelegatedIPAMStatus {
	out := &models.DelegatedIPAMStatus{
		Version:              r.Version,
		NodeName:             r.NodeName,
		Started:              strfmt.DateTime(r.Started),
		Ready:                r.Ready,
		Since:                wireTime(r.Since),
		Reasons:              append([]string{}, r.Reasons...),
		Pools:                make([]*models.PoolStatus, 0, len(r.Pools)),
		Attachments:          countStates(all),
		Quarantined:          make([]*models.QuarantinedRecord, 0, len(r.Quarantined)),
		Counters:             r.Counters,
		OldestPendingRelease: oldestRelease(all),
		LastError:            r.LastError.wire(),
		Options:              make([]*models.OptionValue, 0, len(r.Options)),
	}
	for _, o := range r.Options {
		out.Options = append(out.Options, &models.OptionValue{Name: o.Name, Value: o.Value, Source: o.Source})
	}
	for _, p := range r.Pools {
		out.Pools = append(out.Pools, p.wire())
	}
	for _, p := range r.MovedPlugins {
		out.MovedPlugins = append(out.MovedPlugins, &models.MovedPlugin{Pool: p.Pool, Plugin: p.Plugin, Binary: p.Binary, Executable: p.Executable, Error: p.Error})
	}
	for _, q := range r.Quarantined {
		out.Quarantined = append(out.Quarantined, &models.QuarantinedRecord{File: q.File, Reason: q.Reason, Since: wireTime(q.Since)})
	}
	return out
}

func (p PoolReport) wire() *models.PoolStatus {
	return &models.PoolStatus{
		Pool:           p.Pool,
		Network:        p.Network,
		File:           p.File,
		Plugin:         p.Plugin,
		Binary:         p.Binary,
		CniVersion:     p.CNIVersion,
		PluginVersions: p.PluginVersions,
		Profile:        p.Profile.Type,
		ProfileFacts:   facts(p.Profile),
		Verification:   p.Verification.wire(),
		Error:          p.Error,
		NotReady:       p.NotReady,
		Since:          wireTime(p.Since),
	}
}

// wire is nil, and so left out of the answer, if it is not known.
func (v Verification) wire() *models.PoolVerification {
	if v.By == "" {
		return nil
	}
	return &models.PoolVerification{By: v.By, Reason: v.Reason}
}

// facts are the profile by its own JSON keys; nil if there is none.
func facts(p profile.Profile) map[string]any {
	var out map[string]any
	// A profile is plain data, which JSON carries there and back.
	if data, err := json.Marshal(p); err != nil || p.Type == "" || json.Unmarshal(data, &out) != nil {
		return nil
	}
	return out
}

// countStates counts the attachments in each state, those without any as 0.
func countStates(all []attachment.Attachment) map[string]int64 {
	out := map[string]int64{
		string(record.Adding): 0, string(record.Held): 0, string(record.Cooling): 0, string(record.Releasing): 0,
	}
	for _, a := range all {
		out[string(a.State)]++
	}
	return out
}

// oldestRelease is the release that has waited longest for its DEL; nil if none does.
func oldestRelease(all []attachment.Attachment) *models.PendingRelease {
	var oldest *attachment.Attachment
	for _, a := range all {
		if a.State == record.Releasing && (oldest == nil || a.Changed.Before(oldest.Changed)) {
			oldest = &a
		}
	}
	if oldest == nil {
		return nil
	}
	return &models.PendingRelease{
		Owner: oldest.Owner, Pool: oldest.Pool, ContainerID: oldest.ContainerID,
		Since: strfmt.DateTime(oldest.Changed), LastError: oldest.LastError,
	}
}

// wire is nil, and so left out of the answer, if nothing has failed.
func (e LastError) wire() *models.LastError {
	if e.Text == "" {
		return nil
	}
	return &models.LastError{Text: e.Text, Time: strfmt.DateTime(e.At), Owner: e.Owner, Pool: e.Pool, ContainerID: e.ContainerID}
}
