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

	"github.com/delegated-ipam/delegated-ipam/pkg/defaults"
)

// Options say where to look and for what.
type Options struct {
	// Dir is the folder of the configurations (--cni-conf-dir).
	Dir string
	// File is the one file to read (--cni-conf-file); Dir is then not looked at.
	File string
	// Pools maps each pool to the name of its network; an empty name stands for
	// the first that delegates IPAM. Empty: {"default": ""}.
	Pools map[string]string
	// Log is told of every change.
	Log logrus.FieldLogger
}

// Watcher knows the network of each pool. Its methods may be called at the same time.
type Watcher struct {
	source source
	wanted map[string]string
	// order is "default" first, then by name: who comes first has a network that two want.
	order []string
	log   logrus.FieldLogger

	mu       sync.Mutex
	pools    map[string]pool
	onChange []func(pool string)
}

// pool is what is known of one pool's network.
type pool struct {
	// good is the last good network; nil if there never was one.
	good *Network
	// err is the trouble now.
	err error
	// refused tells that another pool has this one's network.
	refused bool
	since   time.Time
}

// New reads the configurations once. That there are none yet is no error;
// options that cannot work are.
func New(o Options) (*Watcher, error) {
	if o.Dir == "" && o.File == "" {
		return nil, errors.New("CNI configuration: neither a folder (--cni-conf-dir) nor a file (--cni-conf-file) is named")
	}
	if o.Log == nil {
		return nil, errors.New("CNI configuration: no log is given")
	}
	wanted := maps.Clone(o.Pools)
	if len(wanted) == 0 {
		wanted = map[string]string{defaults.Pool: ""}
	}
	w := &Watcher{
		source: source{dir: clean(o.Dir), file: clean(o.File)},
		wanted: wanted,
		order:  slices.SortedFunc(maps.Keys(wanted), ByRank),
		log:    o.Log,
		pools:  map[string]pool{},
	}
	w.reload()
	return w, nil
}

func clean(path string) string {
	if path == "" {
		return ""
	}
	return filepath.Clean(path)
}

// ByRank compares two pools in the order in which they are served and shown:
// the default pool first, the others by name.
func ByRank(a, b string) int {
	if (a == defaults.Pool) != (b == defaults.Pool) {
		if a == defaults.Pool {
			return -1
		}
		return 1
	}
	return cmp.Compare(a, b)
}

// Network returns the network that new attachments of a pool use; an empty pool
// is "default". While its file is broken or gone that is the last good one. The error
// says what is missing: where it was looked for, what was expected, what was found.
func (w *Watcher) Network(poolName string) (Network, error) {
	p, err := w.pool(poolName)
	if err != nil {
		return Network{}, err
	}
	if p.good == nil || p.refused {
		return Network{}, p.err
	}
	n := *p.good
	n.PluginConfig = slices.Clone(n.PluginConfig)
	return n, nil
}

// Status returns how it stands with a pool's configuration. That of an unknown
// pool has only an error.
func (w *Watcher) Status(poolName string) Status {
	p, err := w.pool(poolName)
	if err != nil {
		return Status{Err: err}
	}
	s := Status{Err: p.err, Since: p.since}
	if p.good != nil && !p.refused {
		s.Network, s.File = p.good.Name, p.good.File
	}
	return s
}

// OnChange has f called, from Run, with each pool whose network or trouble changed.
// f must not wait for long: nothing else is noticed meanwhile.
func (w *Watcher) OnChange(f func(pool string)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.onChange = append(w.onChange, f)
}

func (w *Watcher) pool(name string) (pool, error) {
	if name == "" {
		name = defaults.Pool
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	p, ok := w.pools[name]
	if !ok {
		return pool{}, fmt.Errorf("pool %q is not known; known are %s", name, strings.Join(w.order, ", "))
	}
	return p, nil
}

// reload reads the source and gives each pool its network.
func (w *Watcher) reload() {
	all, readErr := w.source.read()
	w.mu.Lock()
	taken := map[string]string{}
	var changed []string
	for _, name := range w.order {
		before, known := w.pools[name]
		after := w.next(name, before, all, readErr)
		after = refuseTaken(name, after, taken)
		if known && after.same(before) {
			continue
		}
		after.since = time.Now()
		w.pools[name] = after
		changed = append(changed, name)
		w.say(name, after)
	}
	tell := slices.Clone(w.onChange)
	w.mu.Unlock()
	for _, name := range changed {
		for _, f := range tell {
			f(name)
		}
	}
}

// next is a pool after its files were read again: a new network, or the last good
// one with the trouble that keeps it.
func (w *Watcher) next(name string, before pool, all []candidate, readErr error) pool {
	lastFile := ""
	if before.good != nil {
		lastFile = before.good.File
	}
	n, err := Network{}, readErr
	if err == nil {
		n, err = choose(all, w.wanted[name], lastFile)
	}
	if err == nil {
		return pool{good: &n, since: before.since}
	}
	if before.good == nil {
		return pool{err: fmt.Errorf("pool %q has no CNI configuration in %s: %w", name, w.source, err), since: before.since}
	}
	return pool{
		good:  before.good,
		err:   fmt.Errorf("pool %q keeps network %q as last read from %s: %w", name, before.good.Name, before.good.File, err),
		since: before.since,
	}
}

// refuseTaken refuses a network that an earlier pool has: two pools that name one network would
// give one owner two container IDs for the same thing (docs/how-it-works.md, CNI configuration).
func refuseTaken(name string, p pool, taken map[string]string) pool {
	if p.good == nil {
		return p
	}
	if first, ok := taken[p.good.Name]; ok {
		p.refused = true
		p.err = fmt.Errorf("pools %q and %q name one network, %q of %s; give each its own (--pool name=network)",
			first, name, p.good.Name, p.good.File)
		return p
	}
	taken[p.good.Name] = name
	return p
}

// same tells whether nothing changed that Network or Status would tell.
func (p pool) same(o pool) bool {
	if p.refused != o.refused || (p.good == nil) != (o.good == nil) || (p.err == nil) != (o.err == nil) {
		return false
	}
	if p.good != nil && !p.good.Equal(*o.good) {
		return false
	}
	return p.err == nil || p.err.Error() == o.err.Error()
}

// say logs how it now stands with a pool.
func (w *Watcher) say(name string, p pool) {
	log := w.log.WithField("poolName", name)
	if p.good != nil {
		log = log.WithFields(logrus.Fields{"network": p.good.Name, "file": p.good.File, "plugin": p.good.IPAMType})
	}
	if p.err != nil {
		log.WithError(p.err).Warn("CNI configuration is not as it should be")
		return
	}
	log.Info("CNI configuration read")
}
