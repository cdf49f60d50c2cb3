package status

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/httpapi"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
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

// poolProbes returns the check of each pool. A new configuration has a new check, which is begun here, so that one that
// hangs does not delay it. Its first result replaces the last one of the configuration before.
func (r *Reporter) poolProbes() []poolProbe {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []poolProbe
	for _, pool := range r.Conf.Pools() {
		n, err := r.Conf.Network(pool)
		last, ok := r.pools[pool]
		c := last
		if err != nil {
			c = poolProbe{pool: pool, confErr: err}
		} else if !ok || !c.network.Equal(n) {
			c = r.newPoolProbe(pool, n)
			if ok {
				c.last = last.result()
			}
			r.pools[pool] = c
			c.start()
		}
		all = append(all, c)
	}
	return all
}

func (r *Reporter) newPoolProbe(pool string, n call.Network) poolProbe {
	unknown := models.PoolStatus{Plugin: n.IPAMType, NotReady: fmt.Sprintf("plugin %s does not respond to VERSION or STATUS", n.IPAMType)}
	// A plugin that has responded before has the time of one call.
	check := newProbe(r, r.PluginTimeout+plugin.DefaultGrace, unknown, func() models.PoolStatus { return CheckPool(r.Plugins, r.Lock, n) })
	return poolProbe{pool: pool, network: n, probe: check, use: newProbe(r, stuckAfter, nil, func() []*models.PoolAddresses {
		// It reads the files of the plugin.
		c, err := r.Plugins.NewInvocation(context.Background(), n, "", "")
		if err != nil {
			return nil
		}
		return rangeUse(r.Plugins.RangeUse(c))
	})}
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
	if err == nil {
		err = plugins.CheckSockets(n)
	}
	if err != nil {
		s.NotReady = err.Error()
	}
	return s
}

// addresses returns the use of the ranges of a pool, or of its attachments where the ranges are not known. An address
// that was allocated before the call counts, so that the status agrees with the list of attachments.
func (r *Reporter) addresses(ctx context.Context, c poolProbe, p *models.PoolStatus) []*models.PoolAddresses {
	if c.confErr != nil || p.CniVersion == "" {
		return nil
	}
	all := c.use.fresh(ctx)
	if len(all) > 0 {
		return all
	}
	leased := r.Engine.Summaries()[c.pool].Leased
	for _, family := range slices.Sorted(maps.Keys(leased)) {
		all = append(all, &models.PoolAddresses{Family: string(family), Used: float64(leased[family])})
	}
	return all
}

// rangeUse returns the use of the ranges that are known, in the form of the API.
func rangeUse(v4, v6 call.RangeUse) (all []*models.PoolAddresses) {
	for i, use := range []call.RangeUse{v4, v6} {
		if use.Total > 0 { // more may be used: of ranges that overlap
			family := []attachment.Family{attachment.IPv4, attachment.IPv6}[i]
			free := max(0, use.Total-use.Used)
			all = append(all, &models.PoolAddresses{Family: string(family), Total: &use.Total, Used: use.Used, Free: &free})
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
func (r *Reporter) addPools(rep *report, pools []poolProbe) {
	warm := r.Engine.Warm()
	for _, c := range pools {
		p := r.pool(c)
		rep.Pools = append(rep.Pools, p)
		if p.Error != "" && p.CniVersion == "" {
			rep.addReason(c.pool, fmt.Sprintf("pool %q: %s", c.pool, p.Error))
		}
		if p.NotReady != "" {
			rep.addReason(c.pool, fmt.Sprintf("pool %q: %s", c.pool, p.NotReady))
		}
		if w, ok := warm[c.pool]; ok {
			p.WarmLeases = &models.WarmLeases{Wanted: int64(w.Wanted), Ready: int64(w.Ready)}
			if w.Err != nil {
				p.WarmLeases.Error = w.Err.Error()
			}
		}
	}
}

// pool returns the status of a pool: its current configuration, and the result of its check.
func (r *Reporter) pool(c poolProbe) *models.PoolStatus {
	conf := r.Conf.Status(c.pool)
	p := models.PoolStatus{}
	if c.confErr != nil {
		p.Error = c.confErr.Error()
	} else {
		p = c.result()
		p.Network, p.File = conf.Network, conf.File
		if p.Error == "" && conf.Err != nil {
			p.Error = conf.Err.Error() // an older configuration is in use
		}
	}
	p.Pool = c.pool
	since, _ := r.observe(c.pool, p.Error+"\n"+p.NotReady, conf.Since)
	p.Since = httpapi.OptionalTime(since)
	return &p
}

// list is the result of a check that finds things; err is why they are not known, or may not be found.
type list[T any] struct {
	all []*T
	err string
}

// findMovedPlugins returns the plugins whose executables recorded attachments name and
// that are elsewhere now or missing. After a change of --cni-bin-dir or of the CNI
// configuration, attachments have other plugins than their pools.
func (r *Reporter) findMovedPlugins() (found list[models.MovedPlugin]) {
	for _, use := range r.Engine.Plugins() {
		executable, err := r.Plugins.Executable(use.Plugin, use.Binary)
		moved := &models.MovedPlugin{Pool: use.Pool, Plugin: use.Plugin, Binary: use.Binary, Executable: executable}
		if err != nil {
			moved.Error = err.Error()
		}
		embedded := use.Binary == "" && err == nil || r.Plugins.Embedded(use.Plugin) != ""
		if executable != use.Binary && !embedded {
			found.all = append(found.all, moved)
		}
	}
	return found
}

// addMovedPlugins adds the moved plugins to a report, and why some attachments cannot be verified or released: without
// the cause if another reason has it.
func (r *Reporter) addMovedPlugins(rep *report) {
	found := r.moved.result()
	if rep.MovedPlugins = found.all; found.err != "" {
		rep.addReason("", found.err)
	}
	for _, p := range found.all {
		if p.Error == "" {
			continue
		}
		text, cause, _ := strings.Cut(p.Error, ": ")
		if !slices.ContainsFunc(rep.Reasons, func(other string) bool { return strings.HasSuffix(other, cause) }) {
			text = p.Error
		}
		rep.addReason(p.Pool, fmt.Sprintf("pool %q: attachments cannot be verified or released: %s", p.Pool, text))
	}
}

// checkStateDir writes to the state directory and lists the quarantined records.
func (r *Reporter) checkStateDir() (s list[models.QuarantinedRecord]) {
	failed := r.writeErr.Load()
	err := r.Journal.Writable()
	if err == nil {
		r.writeErr.CompareAndSwap(failed, nil) // a later one stays
	}
	all, listErr := r.Journal.Quarantined()
	if err = cmp.Or(err, listErr); err != nil {
		s.err = err.Error()
	}
	for _, q := range all {
		s.all = append(s.all, &models.QuarantinedRecord{File: q.Name, Reason: q.Reason, Since: httpapi.OptionalTime(q.Since)})
	}
	return s
}
