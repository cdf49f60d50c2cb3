package httpapi

import (
	"encoding/json"

	"github.com/go-openapi/strfmt"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// delegatedIPAM returns the property delegated-ipam of the status.
func (r Report) delegatedIPAM(s *attachmentStats) *models.DelegatedIPAMStatus {
	out := &models.DelegatedIPAMStatus{
		Version:              r.Version,
		NodeName:             r.NodeName,
		Started:              strfmt.DateTime(r.Started),
		Ready:                r.Ready,
		Since:                optionalTime(r.Since),
		Reasons:              append([]string{}, r.Reasons...),
		Pools:                make([]*models.PoolStatus, 0, len(r.Pools)),
		Attachments:          s.states,
		Quarantined:          make([]*models.QuarantinedRecord, 0, len(r.Quarantined)),
		Counters:             r.Counters,
		OldestPendingRelease: s.oldestRelease,
		LastError:            r.LastError.model(),
		Options:              make([]*models.OptionValue, 0, len(r.Options)),
	}
	for _, o := range r.Options {
		out.Options = append(out.Options, &models.OptionValue{Name: o.Name, Value: o.Value, Source: o.Source})
	}
	for _, p := range r.Pools {
		out.Pools = append(out.Pools, p.model())
	}
	for _, p := range r.MovedPlugins {
		out.MovedPlugins = append(out.MovedPlugins, &models.MovedPlugin{Pool: p.Pool, Plugin: p.Plugin, Binary: p.Binary, Executable: p.Executable, Error: p.Error})
	}
	for _, q := range r.Quarantined {
		out.Quarantined = append(out.Quarantined, &models.QuarantinedRecord{File: q.File, Reason: q.Reason, Since: optionalTime(q.Since), Version: int64(q.Version)})
	}
	return out
}

func (p PoolReport) model() *models.PoolStatus {
	return &models.PoolStatus{
		Pool:           p.Pool,
		Network:        p.Network,
		File:           p.File,
		Plugin:         p.Plugin,
		Binary:         p.Binary,
		CniVersion:     p.CNIVersion,
		PluginVersions: p.PluginVersions,
		Profile:        p.Profile.Type,
		ProfileFacts:   profileFacts(p.Profile),
		Verification:   p.Verification.model(),
		Error:          p.Error,
		NotReady:       p.NotReady,
		Since:          optionalTime(p.Since),
	}
}

// model returns nil, which is left out of the response, if it is not known.
func (v Verification) model() *models.PoolVerification {
	if v.By == "" {
		return nil
	}
	return &models.PoolVerification{By: v.By, Reason: v.Reason}
}

// profileFacts returns the profile by its JSON keys; nil if there is none.
func profileFacts(p profile.Profile) map[string]any {
	var out map[string]any
	// A profile is plain data, which JSON encodes without loss.
	if data, err := json.Marshal(p); err != nil || p.Type == "" || json.Unmarshal(data, &out) != nil {
		return nil
	}
	return out
}

// model returns nil, which is left out of the response, if there was no failure.
func (e LastError) model() *models.LastError {
	if e.Text == "" {
		return nil
	}
	return &models.LastError{Text: e.Text, Time: strfmt.DateTime(e.At), Owner: e.Owner, Pool: e.Pool, ContainerID: e.ContainerID}
}
