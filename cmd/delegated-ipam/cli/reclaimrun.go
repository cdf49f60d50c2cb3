package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
	"github.com/delegated-ipam/delegated-ipam/internal/cniconf"
	"github.com/delegated-ipam/delegated-ipam/internal/lostnodes"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/nodelock"
)

// maxListAge is how long the list of --from is valid: a node may have returned since.
const maxListAge = 15 * time.Minute

func (d dependencies) reclaim(cmd *cobra.Command, o reclaimOptions) error {
	nodes, until, err := o.lost(d.now())
	if err != nil {
		return err
	}
	resolved, err := o.resolve(d.env)
	if err != nil {
		return err
	}
	if err := errors.Join(resolved.Validate(), plugin.CheckNetNS(resolved.CNINetNS)); err != nil {
		return cmdline.Usage(err)
	}
	lockDir, err := makeLockDir()
	if err != nil {
		return err
	}
	defer os.RemoveAll(lockDir)
	plugins := sidecar.Config{Sidecar: resolved}.PluginOptions()
	plugins.LockFile = filepath.Join(lockDir, "lock")
	runner, err := plugin.New(plugins)
	if err != nil {
		return cmdline.Usage(err)
	}
	pools, err := reclaimPools(resolved)
	if err != nil {
		return err
	}
	r := lostnodes.Reclaim{
		Plugin: runner, Pools: pools, Self: resolved.NodeName, Sidecar: nodelock.Holder,
		DryRun: o.dryRun, Until: until, Now: d.now,
	}
	if err := r.Check(cmd.Context()); err != nil {
		return err
	}
	if o.from == "" {
		if err := r.CheckNode(nodes[0]); err != nil {
			return err
		}
	}
	return d.runReclaim(cmd, o, r, nodes)
}

func (d dependencies) runReclaim(cmd *cobra.Command, o reclaimOptions, r lostnodes.Reclaim, nodes []lostnodes.Node) error {
	results := r.Run(cmd.Context(), nodes)
	if err := o.printReclaimed(cmd, results); err != nil {
		return err
	}
	if o.report != "" {
		return lostnodes.Write(o.report, reportOf(nodes, results))
	}
	left := 0
	for _, result := range results {
		if result.State == lostnodes.Failed || result.State == lostnodes.NotTried {
			left++
		}
	}
	if left > 0 {
		return fmt.Errorf("%d of %d container IDs were not released; run it again: a repeated DEL is harmless", left, len(results))
	}
	return nil
}

// lost returns the lost nodes, and the end of the validity of their list.
func (o reclaimOptions) lost(now time.Time) ([]lostnodes.Node, time.Time, error) {
	list := lostnodes.List{Nodes: []lostnodes.Node{{Name: o.node, Owners: o.owners}}}
	var until time.Time
	if o.from != "" {
		var err error
		if list, err = lostnodes.Read[lostnodes.List](o.from); err != nil {
			return nil, until, err
		}
		until = list.Time.Add(maxListAge)
		if age := now.Sub(list.Time); age > maxListAge || age < -maxListAge {
			return nil, until, fmt.Errorf("%s is of %s; expected a list that is at most %s old: a node may have returned since", o.from, list.Time.Format(time.RFC3339), maxListAge)
		}
	}
	if o.from == "" {
		if _, err := list.Nodes[0].AllOwners(); err != nil {
			return nil, until, cmdline.Usage(err)
		}
	}
	for i, n := range list.Nodes {
		if n.Generations >= 0 {
			list.Nodes[i].Generations = max(n.Generations, o.generations)
		}
	}
	return list.Nodes, until, nil
}

// reclaimPools returns the pools of serve. A pool without a configuration is an error: its addresses
// would be forgotten.
func reclaimPools(s options.Sidecar) ([]lostnodes.Pool, error) {
	conf, err := cniconf.New(cniconf.Options{Dir: s.CNIConfDir, File: s.CNIConfFile, Pools: s.Pools, DefaultPool: s.IPAMDefaultIPPool})
	if err != nil {
		return nil, cmdline.Usage(err)
	}
	var pools []lostnodes.Pool
	for _, name := range conf.Pools() {
		n, err := conf.Network(name)
		if err != nil {
			return nil, fmt.Errorf("pool %q: %w", name, err)
		}
		pools = append(pools, lostnodes.Pool{Name: name, Network: n})
	}
	return pools, nil
}

// makeLockDir creates the directory of the lock file. Where the container's file system is read-only,
// it is in memory.
func makeLockDir() (string, error) {
	const pattern = "delegated-ipam-reclaim-"
	dir, err := os.MkdirTemp("", pattern)
	if err == nil {
		return dir, nil
	}
	dir, shmErr := os.MkdirTemp("/dev/shm", pattern)
	if shmErr != nil {
		return "", fmt.Errorf("directory of the lock file: %w; TMPDIR names another", errors.Join(err, shmErr))
	}
	return dir, nil
}
