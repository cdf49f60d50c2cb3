package restapi

import (
	"encoding/json"

	"github.com/go-openapi/strfmt"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/profile"
)

// extension is the property delegated-ipam of the status.
func (r Report) extension(c *census) *models.DelegatedIPAMStatus {
	out := &models.DelegatedIPAMStatus{
		Version:              r.Version,
		NodeName:             r.NodeName,
		Started:              strfmt.DateTime(r.Started),
		Ready:                r.Ready,
		Since:                wireTime(r.Since),
		Reasons:              append([]string{}, r.Reasons...),
		Pools:                make([]*models.PoolStatus, 0, len(r.Pools)),
		Attachments:          c.states,
		Quarantined:          make([]*models.QuarantinedRecord, 0, len(r.Quarantined)),
		Counters:             r.Counters,
		OldestPendingRelease: c.oldest,
		LastError:            r.LastError.wire(),
		Options:              make([]*models.OptionValue, 0, len(r.Options)),
	}
	for _, o := range r.Options {
		out.Options = append(out.Options, &models.OptionValue{Name: o.Name, Value: o.Value, Source: o.Source})
	}
	for _, p := range r.Pools {
		out.Pools = append(out.Pools, p.wire())
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
		Error:          p.Error,
		NotReady:       p.NotReady,
		Since:          wireTime(p.Since),
	}
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

// wire is nil, and so left out of the answer, if nothing has failed.
func (e LastError) wire() *models.LastError {
	if e.Text == "" {
		return nil
	}
	return &models.LastError{Text: e.Text, Time: strfmt.DateTime(e.At), Owner: e.Owner, Pool: e.Pool, ContainerID: e.ContainerID}
}
