package status

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/httpapi"
)

// stuckAfter is how long a write to the state directory or the lookup of executables may hang before
// it counts as failed.
const stuckAfter = 30 * time.Second

// poolProbe checks the plugin of a pool with one CNI configuration.
type poolProbe struct {
	pool    string
	network call.Network
	// confErr is why the pool has no configuration, and so no check.
	confErr error
	*probe[models.PoolStatus]
	// use counts the addresses of its ranges.
	use *probe[[]*models.PoolAddresses]
}

// poolProbes returns the check of each pool. Results with another configuration do not apply to the present one, so its
// check is a new one, which is begun here.
func (r *Reporter) poolProbes() []poolProbe {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []poolProbe
	for _, pool := range r.Conf.Pools() {
		n, err := r.Conf.Network(pool)
		c, ok := r.pools[pool]
		if err != nil {
			c = poolProbe{pool: pool, confErr: err}
		} else if !ok || !c.network.Equal(n) {
			c = poolProbe{pool: pool, network: n, probe: &probe[models.PoolStatus]{
				run: func() (models.PoolStatus, bool) {
					s := CheckPool(r.Plugins, r.Lock, n)
					return s, s.Error == "" && s.NotReady == ""
				},
				unknown: models.PoolStatus{
					Plugin: n.IPAMType, NotReady: fmt.Sprintf("plugin %s does not respond to VERSION or STATUS", n.IPAMType),
				},
				// A plugin that has responded before has the time of one call.
				stuckAfter: r.PluginTimeout + plugin.DefaultGrace,
				first:      make(chan struct{}),
			}, use: &probe[[]*models.PoolAddresses]{
				run:        func() ([]*models.PoolAddresses, bool) { return r.countAddresses(n), true },
				stuckAfter: stuckAfter, first: make(chan struct{}),
			}}
			r.pools[pool] = c
			c.start(true, &r.running, r.change)
		}
		all = append(all, c)
	}
	return all
}

// CheckPool checks whether a pool with a network can allocate: Error and NotReady are why not. It calls lock with the
// network's name, reads the executable, and calls STATUS and, unless the
// results are known, VERSION and plugin.Runner.CheckConfig: each may take long.
func CheckPool(plugins *plugin.Runner, lock func(network string) error, n call.Network) models.PoolStatus {
	s := models.PoolStatus{Plugin: n.IPAMType}
	if err := lock(n.Name); err != nil {
		s.Error = err.Error()
		return s
	}
	ctx := context.Background()
	c, err := plugins.NewInvocation(ctx, n, "", "")
	s.Profile, s.ProfileFacts = c.Profile.Type, profileFacts(c.Profile) // known even if the plugin cannot be used
	if err != nil {
		s.Error = err.Error()
		return s
	}
	s.Embedded = plugins.Embedded(n.IPAMType)
	if differs := plugins.ProgramDiffers(ctx, n, c); differs != nil {
		s.ProgramDiffers = differs.Error()
	}
	s.Binary, s.CniVersion, s.PluginVersions = c.Binary, c.CNIVersion, plugins.Versions(c.Binary)
	v := plugins.Verification(c)
	s.Verification = &models.PoolVerification{By: v.By, Reason: v.Reason}
	if err = plugins.Status(ctx, c); err == nil {
		err = plugins.CheckConfig(ctx, n, c)
	}
	if err == nil {
		err = plugins.CheckAddresses(n, c)
	}
	if err != nil {
		s.NotReady = err.Error()
	}
	return s
}

// addAddresses adds the use of the ranges to a report. An address that was allocated before the call counts, so that the
// status agrees with the list of attachments.
func (r *Reporter) addAddresses(ctx context.Context, rep *models.DelegatedIPAMStatus) {
	for i, c := range r.poolProbes() {
		if c.confErr == nil && rep.Pools[i].CniVersion != "" {
			rep.Pools[i].Addresses = c.use.fresh(ctx, &r.running)
		}
	}
}

// countAddresses returns the use of the ranges of a network that are known. It reads the files of the plugin.
func (r *Reporter) countAddresses(n call.Network) []*models.PoolAddresses {
	c, err := r.Plugins.NewInvocation(context.Background(), n, "", "")
	if err != nil {
		return nil
	}
	return addresses(r.Plugins.RangeUse(c))
}

// addresses returns the use of the ranges that are known, in the form of the API.
func addresses(v4, v6 call.RangeUse) (all []*models.PoolAddresses) {
	for i, use := range []call.RangeUse{v4, v6} {
		if use.Total > 0 { // more may be used: of ranges that overlap
			family := []attachment.Family{attachment.IPv4, attachment.IPv6}[i]
			all = append(all, &models.PoolAddresses{Family: string(family), Total: use.Total, Used: use.Used, Free: max(0, use.Total-use.Used)})
		}
	}
	return all
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

// addPools adds the status of each pool to a report, and why it cannot allocate now. One that keeps an older
// configuration can.
func (r *Reporter) addPools(ctx context.Context, rep *models.DelegatedIPAMStatus, reasons *[]reason) (pending bool) {
	for _, c := range r.poolProbes() {
		p, unknown := r.pool(ctx, c)
		pending = pending || unknown
		rep.Pools = append(rep.Pools, p)
		if p.Error != "" && p.CniVersion == "" {
			*reasons = append(*reasons, reason{c.pool, fmt.Sprintf("pool %q: %s", c.pool, p.Error)})
		}
		if p.NotReady != "" {
			*reasons = append(*reasons, reason{c.pool, fmt.Sprintf("pool %q: %s", c.pool, p.NotReady)})
		}
	}
	return pending
}

// pool returns the status of a pool: its current configuration, and the result of its check.
func (r *Reporter) pool(ctx context.Context, c poolProbe) (p *models.PoolStatus, pending bool) {
	conf := r.Conf.Status(c.pool)
	p = &models.PoolStatus{}
	if c.confErr != nil {
		p.Error = c.confErr.Error()
	} else {
		*p, pending = c.result(ctx)
		p.Network, p.File = conf.Network, conf.File
		if p.Error == "" && conf.Err != nil {
			p.Error = conf.Err.Error() // an older configuration is in use
		}
	}
	p.Pool = c.pool
	since := conf.Since
	if !pending {
		since, _ = r.observe(c.pool, p.Error+"\n"+p.NotReady, conf.Since)
	}
	p.Since = httpapi.OptionalTime(since)
	return p, pending
}

// movedPlugins are the plugins of held attachments that are elsewhere now or missing.
type movedPlugins struct {
	all []*models.MovedPlugin
	err string // why they are not known; empty if they are
}

// findMovedPlugins returns the plugins whose executables recorded attachments name and
// that are elsewhere now or missing. After a change of --cni-bin-dir or of the CNI
// configuration, attachments have other plugins than their pools.
func (r *Reporter) findMovedPlugins() (found movedPlugins, good bool) {
	good = true
	for _, use := range r.Engine.Plugins() {
		executable, err := r.Plugins.Executable(use.Plugin, use.Binary)
		moved := &models.MovedPlugin{Pool: use.Pool, Plugin: use.Plugin, Binary: use.Binary, Executable: executable}
		if err != nil {
			moved.Error = err.Error()
		}
		embedded := use.Binary == "" && err == nil || r.Plugins.Embedded(use.Plugin) != ""
		if executable != use.Binary && !embedded {
			found.all, good = append(found.all, moved), good && err == nil
		}
	}
	return found, good
}

// addMovedPlugins adds the moved plugins to a report, and why some attachments cannot be verified or released: without
// the cause if another reason has it.
func (r *Reporter) addMovedPlugins(ctx context.Context, rep *models.DelegatedIPAMStatus, reasons *[]reason) (pending bool) {
	found, pending := r.moved.result(ctx)
	if found.err != "" {
		*reasons = append(*reasons, reason{text: found.err})
	}
	rep.MovedPlugins = found.all
	for _, p := range found.all {
		if p.Error == "" {
			continue
		}
		text, cause, _ := strings.Cut(p.Error, ": ")
		if !slices.ContainsFunc(*reasons, func(other reason) bool { return strings.HasSuffix(other.text, cause) }) {
			text = p.Error
		}
		*reasons = append(*reasons, reason{p.Pool, fmt.Sprintf("pool %q: attachments cannot be verified or released: %s", p.Pool, text)})
	}
	return pending
}

// stateDirStatus is the status of the state directory.
type stateDirStatus struct {
	// err is why it cannot be written; empty if it can.
	err         string
	quarantined []*models.QuarantinedRecord
}

// checkStateDir writes to the state directory and lists the quarantined records.
func (r *Reporter) checkStateDir() (s stateDirStatus, good bool) {
	if err := r.Journal.Writable(); err != nil {
		s.err = err.Error()
	}
	all, err := r.Journal.Quarantined()
	if err != nil && s.err == "" {
		s.err = err.Error()
	}
	for _, q := range all {
		s.quarantined = append(s.quarantined, &models.QuarantinedRecord{File: q.Name, Reason: q.Reason, Since: httpapi.OptionalTime(q.Since)})
	}
	return s, s.err == ""
}

// addStateDir adds the quarantined records to a report, and why the state directory cannot be written.
func (r *Reporter) addStateDir(ctx context.Context, rep *models.DelegatedIPAMStatus, reasons *[]reason) (pending bool) {
	s, pending := r.stateDir.result(ctx)
	if s.err != "" {
		*reasons = append(*reasons, reason{text: s.err})
	}
	rep.Quarantined = append([]*models.QuarantinedRecord{}, s.quarantined...) // never null
	return pending
}
