// Package cniconf finds, reads and watches the CNI network configurations of the pools. It
// chooses among the files as a container runtime does.
package cniconf

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/internal/dirwatch"
	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

// Options configure a Watcher.
type Options struct {
	// Dir is the directory of the configurations (--cni-conf-dir).
	Dir string
	// File is the only file to read (--cni-conf-file); Dir is then ignored.
	File string
	// Pools maps each pool to the name of its network, or to NETWORK/TYPE for the plugin of a type in its
	// chain; an empty name selects the first network that delegates IPAM. If empty, there is the default
	// pool alone, with an empty name.
	Pools map[string]string
	// DefaultPool is the name of the default pool; empty for "default".
	DefaultPool string
	// Log gets one line for each change; nil for none.
	Log logrus.FieldLogger
}

// Watcher knows the network of each pool. Run reads the files again after each change. Its methods
// may be called concurrently.
type Watcher struct {
	*dirwatch.Watcher
	source source
	// networks are the names of the pools' networks.
	networks map[string]string
	// order sorts the pools: the first of two pools with one network gets it.
	order []string
	log   logrus.FieldLogger

	mu       sync.Mutex
	pools    map[string]pool
	onChange func()
}

type pool struct {
	// network is the last valid network; nil if there never was one.
	network *call.Network
	// err is why the files that exist now do not give it one.
	err error
	// conflict means that another pool has its network.
	conflict bool
	// configured means that it has had a network since New.
	configured bool
	since      time.Time
}

// Status is the status of a pool's configuration.
type Status struct {
	// Network is the name of the network in use, empty if there is none, and File its file.
	Network, File string
	// Err is why the pool has no network or, with a network in use, why the files that
	// exist now do not replace it; nil without an error.
	Err error
	// Since is when one of the fields above last changed.
	Since time.Time
}

// New reads the configurations once. That they do not exist yet is not an error; invalid
// options are.
func New(o Options) (*Watcher, error) {
	w := &Watcher{networks: maps.Clone(o.Pools), log: o.Log, pools: map[string]pool{}}
	var watched string
	switch {
	case o.File != "":
		w.source.file = filepath.Clean(o.File)
		watched = filepath.Dir(w.source.file)
	case o.Dir != "":
		w.source.dir = filepath.Clean(o.Dir)
		watched = w.source.dir
	default:
		return nil, errors.New("CNI configuration: neither a directory (--cni-conf-dir) nor a file (--cni-conf-file) is set")
	}
	if w.log == nil {
		w.log = logging.Discard()
	}
	defaultPool := cmp.Or(o.DefaultPool, client.DefaultPool)
	if len(w.networks) == 0 {
		w.networks = map[string]string{defaultPool: ""}
	}
	w.order = ByRank(w.networks, defaultPool)
	w.Watcher = dirwatch.New(watched, "CNI configuration", w.log, w.reload)
	w.reload()
	return w, nil
}

// ByRank returns the names of pools in the order in which they are served and listed: the default
// pool first, the others by name.
func ByRank(pools map[string]string, defaultPool string) []string {
	names := slices.Sorted(maps.Keys(pools))
	if i := slices.Index(names, defaultPool); i > 0 {
		names = slices.Insert(slices.Delete(names, i, i+1), 0, defaultPool)
	}
	return names
}

// Pools returns the names of the pools, by rank.
func (w *Watcher) Pools() []string { return slices.Clone(w.order) }

// Network returns the network that new attachments of a pool use. While its file is invalid, or
// missing in Options.Dir, that is the last valid one; a missing Options.File is an error. The error
// names the directory or file, what was expected, and what was found.
func (w *Watcher) Network(poolName string) (call.Network, error) {
	p, err := w.pool(poolName)
	if err != nil {
		return call.Network{}, err
	}
	if p.network == nil || p.conflict {
		return call.Network{}, p.err
	}
	n := *p.network
	n.PluginConfig = slices.Clone(n.PluginConfig)
	return n, nil
}

// Configured returns nil if a pool has had a network since New, and the error of Network otherwise.
func (w *Watcher) Configured(poolName string) error {
	p, err := w.pool(poolName)
	if err != nil || p.configured {
		return err
	}
	return p.err
}

// Status returns the status of a pool's configuration; of an unknown pool only an error.
func (w *Watcher) Status(poolName string) Status {
	p, err := w.pool(poolName)
	if err != nil {
		return Status{Err: err}
	}
	s := Status{Err: p.err, Since: p.since}
	if p.network != nil && !p.conflict {
		s.Network, s.File = p.network.Name, p.network.File
	}
	return s
}

// OnChange sets the function that Run calls after a change of a pool's network or error. It delays
// further changes until it returns.
func (w *Watcher) OnChange(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.onChange = f
}

func (w *Watcher) pool(name string) (pool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p, ok := w.pools[name]
	if !ok {
		return pool{}, fmt.Errorf("unknown pool %q; expected one of %s", name, strings.Join(w.order, ", "))
	}
	return p, nil
}

func (w *Watcher) reload() {
	candidates, readErr := w.source.read()
	w.mu.Lock()
	usedBy := map[string]string{}
	onChange := func() {}
	for _, name := range w.order {
		before, known := w.pools[name]
		after := w.update(name, before, candidates, readErr)
		after.yieldNetwork(name, usedBy)
		if known && after.equal(before) {
			continue
		}
		after.since, after.configured = time.Now(), before.configured || after.network != nil && !after.conflict
		w.pools[name] = after
		w.logChange(name, after)
		if w.onChange != nil {
			onChange = w.onChange
		}
	}
	w.mu.Unlock()
	onChange()
}

// update returns a pool after its files were read: with a new network; with the last valid one and
// an error; or, if the only file was removed, with an error alone.
func (w *Watcher) update(name string, before pool, candidates []candidate, readErr error) pool {
	lastFile := ""
	if before.network != nil {
		lastFile = before.network.File
	}
	n, err := call.Network{}, readErr
	if err == nil {
		n, err = choose(candidates, w.networks[name], lastFile)
	}
	switch {
	case err == nil:
		return pool{network: &n}
	case before.network == nil || w.source.withdrawn(candidates):
		return pool{err: fmt.Errorf("no CNI configuration in %s: %w", w.source, err)}
	}
	return pool{network: before.network, err: fmt.Errorf("network %q is kept as last read from %s: %w", before.network.Name, lastFile, err)}
}

// yieldNetwork takes from a pool a network that an earlier pool uses: with two pools of one network,
// an owner would have two attachments with one container ID (docs/design/how-it-works.md, CNI
// configuration).
func (p *pool) yieldNetwork(name string, usedBy map[string]string) {
	if p.network == nil {
		return
	}
	first, used := usedBy[p.network.Name]
	if !used {
		usedBy[p.network.Name] = name
		return
	}
	p.conflict = true
	p.err = fmt.Errorf("network %q of %s is that of pool %q; configure a separate network for each pool (--pool name=network)",
		p.network.Name, p.network.File, first)
}

// equal reports whether Network and Status return the same for both.
func (p pool) equal(o pool) bool {
	if p.conflict != o.conflict || (p.network == nil) != (o.network == nil) || p.network != nil && !p.network.Equal(*o.network) {
		return false
	}
	return fmt.Sprint(p.err) == fmt.Sprint(o.err)
}

func (w *Watcher) logChange(name string, p pool) {
	log := w.log.WithField("poolName", name)
	if p.network != nil {
		log = log.WithFields(logrus.Fields{"network": p.network.Name, "file": p.network.File, "plugin": p.network.IPAMType})
	}
	if p.err != nil {
		log.WithError(p.err).Warn("CNI configuration has an error")
		return
	}
	log.Info("CNI configuration read")
}
