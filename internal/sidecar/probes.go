package sidecar

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/httpapi"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/nodelock"
)

// stuckAfter is how long a write to the state directory or the lookup of executables may hang before
// it counts as failed.
const stuckAfter = 30 * time.Second

// poolProbe probes the plugin of a pool with one CNI configuration.
type poolProbe struct {
	network call.Network
	*cachedProbe[pluginStatus]
	// use is the use of the ranges of its configuration, without those that are not known.
	use *cachedProbe[rangeUse]
}

// rangeUse is the use of the ranges of a pool, by family.
type rangeUse map[attachment.Family]call.RangeUse

// pluginStatus is the result of a pool's probe.
type pluginStatus struct {
	models.PoolStatus
	// invocation is the invocation of a new ADD; incomplete if Error is set.
	invocation call.Invocation
}

// poolProbe returns the probe of a pool's plugin, refreshed. Another configuration has
// another probe: results with the previous one do not apply to it.
func (r *reporter) poolProbe(pool string, n call.Network) poolProbe {
	r.mu.Lock()
	defer r.mu.Unlock()
	probe, ok := r.byPool[pool]
	if !ok || !probe.network.Equal(n) {
		status := &cachedProbe[pluginStatus]{
			run:  func() pluginStatus { return r.probePlugin(n) },
			good: func(s pluginStatus) bool { return s.Error == "" && s.NotReady == "" },
			// A plugin that has responded before has the time of one call.
			stuckAfter: r.config.PluginTimeout + plugin.DefaultGrace,
			running:    &r.probes,
		}
		probe = poolProbe{n, status, &cachedProbe[rangeUse]{
			run: func() rangeUse {
				last, _ := status.result(canceled())
				return rangesByFamily(r.runner.RangeUse(last.invocation))
			},
			good:       func(rangeUse) bool { return true },
			stuckAfter: stuckAfter,
			running:    &r.probes,
		}}
		r.byPool[pool] = probe
	}
	probe.refresh()
	return probe
}

// canceled returns a context with which a result is not waited for.
func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// probePlugin checks whether a pool's plugin can be used. It reads the executable and calls STATUS and,
// unless the results are known, VERSION and plugin.Runner.CheckConfig: each may take long.
func (r *reporter) probePlugin(n call.Network) pluginStatus {
	s := pluginStatus{PoolStatus: models.PoolStatus{Plugin: n.IPAMType}}
	if err := r.locks.Acquire(n.Name, nodelock.QueryTimeout); err != nil {
		s.Error = err.Error()
		return s
	}
	ctx := context.Background()
	c, err := r.runner.NewInvocation(ctx, n, "", "")
	s.Profile, s.ProfileFacts = c.Profile.Type, profileFacts(c.Profile) // known even if the plugin cannot be used
	if err != nil {
		s.Error = err.Error()
		return s
	}
	s.invocation = c
	s.Embedded = r.runner.Embedded(n.IPAMType)
	if differs := r.runner.ProgramDiffers(ctx, n, c); differs != nil {
		s.ProgramDiffers = differs.Error()
	}
	s.Binary, s.CniVersion, s.PluginVersions = c.Binary, c.CNIVersion, r.runner.Versions(c.Binary)
	if err = r.runner.Status(ctx, c); err == nil {
		err = r.runner.CheckConfig(ctx, n, c)
	}
	if err == nil {
		err = r.runner.CheckAddresses(n, c)
	}
	if err != nil {
		s.NotReady = err.Error()
	}
	return s
}

// rangesByFamily returns the use of the ranges that are known.
func rangesByFamily(v4, v6 call.RangeUse) rangeUse {
	ranges := rangeUse{attachment.IPv4: v4, attachment.IPv6: v6}
	maps.DeleteFunc(ranges, func(_ attachment.Family, use call.RangeUse) bool { return use.Total == 0 })
	return ranges
}

// rangesOf returns the use of the ranges in a report, by pool.
func rangesOf(pools []*models.PoolStatus) map[string]map[attachment.Family]call.RangeUse {
	all := map[string]map[attachment.Family]call.RangeUse{}
	for _, p := range pools {
		all[p.Pool] = rangeUse{}
		for _, a := range p.Addresses {
			all[p.Pool][attachment.Family(a.Family)] = call.RangeUse{Total: a.Total, Used: a.Used}
		}
	}
	return all
}

// countAddresses reads the use of the pool's ranges, and returns the previous one while that is slow. An address
// that was allocated before the call counts, so that the status agrees with the list of attachments.
func (p poolProbe) countAddresses(ctx context.Context) rangeUse {
	p.use.expire()
	p.use.refresh()
	use, state := p.use.result(ctx)
	if state == probeStuck {
		return nil
	}
	return use
}

// addresses returns the use of ranges in the form of the API, IPv4 first.
func addresses(ranges rangeUse) []*models.PoolAddresses {
	var out []*models.PoolAddresses
	for _, family := range slices.Sorted(maps.Keys(ranges)) {
		use := ranges[family]
		out = append(out, &models.PoolAddresses{Family: string(family), Total: use.Total, Used: use.Used, Free: max(0, use.Total-use.Used)})
	}
	return out
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

// pool returns the status of a pool: its current configuration, and the status of its
// plugin if that is known in time.
func (r *reporter) pool(ctx context.Context, pool string) (*models.PoolStatus, probeState) {
	s := r.conf.Status(pool)
	p, state := models.PoolStatus{}, probeFresh
	if n, err := r.conf.Network(pool); err != nil {
		p.Error = err.Error()
	} else {
		var status pluginStatus
		probe := r.poolProbe(pool, n)
		status, state = probe.result(ctx)
		p = status.PoolStatus
		if state != probeFresh {
			p = models.PoolStatus{Plugin: n.IPAMType, NotReady: fmt.Sprintf("plugin %s does not respond to VERSION or STATUS", n.IPAMType)}
		} else if p.CniVersion != "" { // not cached: an ADD may have changed it since
			v := r.runner.Verification(status.invocation)
			p.Verification = &models.PoolVerification{By: v.By, Reason: v.Reason}
			p.Addresses = addresses(probe.countAddresses(ctx))
		}
		p.Network, p.File = s.Network, s.File
		if p.Error == "" && s.Err != nil {
			p.Error = s.Err.Error() // an older configuration is in use
		}
	}
	p.Pool = pool
	since := s.Since
	if state != probePending {
		since = r.transitions.pool(pool, p.Error+"\n"+p.NotReady, s.Since)
	}
	p.Since = httpapi.OptionalTime(since)
	return &p, state
}

// movedPlugin is a plugin that is elsewhere now or missing.
type movedPlugin struct {
	models.MovedPlugin
	// cause is the end of Error, which is also the error of a pool with the same plugin.
	cause string
}

// findMovedPlugins returns the plugins whose executables recorded attachments name and
// that are elsewhere now or missing. After a change of --cni-bin-dir or of the CNI
// configuration, attachments have other plugins than their pools.
func (r *reporter) findMovedPlugins() []movedPlugin {
	var all []movedPlugin
	for _, use := range r.engine.Plugins() {
		executable, err := r.runner.Executable(use.Plugin, use.Binary)
		moved := movedPlugin{MovedPlugin: models.MovedPlugin{Pool: use.Pool, Plugin: use.Plugin, Binary: use.Binary, Executable: executable}}
		if err != nil {
			moved.Error = err.Error()
		}
		if cause := errors.Unwrap(err); cause != nil {
			moved.cause = cause.Error()
		}
		embedded := use.Binary == "" && err == nil || r.runner.Embedded(use.Plugin) != ""
		if executable != use.Binary && !embedded {
			all = append(all, moved)
		}
	}
	return all
}

func (p movedPlugin) missing() bool { return p.Error != "" }

// addMovedPlugins adds the moved plugins to a report with other reasons, and returns why some attachments
// cannot be verified or released.
func (r *reporter) addMovedPlugins(ctx context.Context, rep *models.DelegatedIPAMStatus, others []reason) (reasons []reason, state probeState) {
	all, state := r.moved.result(ctx)
	if state != probeFresh {
		reasons = append(reasons, reason{text: "plugin directories do not respond: the plugins of held attachments cannot be looked up"})
	}
	for _, p := range all {
		rep.MovedPlugins = append(rep.MovedPlugins, &p.MovedPlugin)
		if p.missing() {
			reasons = append(reasons, reason{p.Pool, p.reason(slices.Concat(others, reasons))})
		}
	}
	return reasons, state
}

// reason returns why attachments with a missing plugin cannot be verified or released, without the
// cause if one of the other reasons has it.
func (p movedPlugin) reason(others []reason) string {
	text := p.Error
	if slices.ContainsFunc(others, func(other reason) bool { return strings.HasSuffix(other.text, p.cause) }) {
		text = strings.TrimSuffix(text, ": "+p.cause)
	}
	return fmt.Sprintf("pool %q: attachments cannot be verified or released: %s", p.Pool, text)
}

// stateDirStatus is the status of the state directory.
type stateDirStatus struct {
	// err is why it cannot be written; empty if it can.
	err         string
	quarantined []*models.QuarantinedRecord
}

// checkStateDir writes to the state directory and lists the quarantined records.
func (r *reporter) checkStateDir() stateDirStatus {
	var s stateDirStatus
	if err := r.journal.Writable(); err != nil {
		s.err = err.Error()
	}
	all, err := r.journal.Quarantined()
	if err != nil && s.err == "" {
		s.err = err.Error()
	}
	for _, q := range all {
		s.quarantined = append(s.quarantined, &models.QuarantinedRecord{File: q.Name, Reason: q.Reason, Since: httpapi.OptionalTime(q.Since)})
	}
	return s
}

func (r *reporter) stateDirStatus(ctx context.Context) (stateDirStatus, probeState) {
	s, state := r.stateDir.result(ctx)
	if state != probeFresh {
		s.err = fmt.Sprintf("state directory %s does not respond to a write", r.config.StateDir)
	}
	return s, state
}
