package app

import (
	"context"
	"errors"
	"io"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/pkg/cniconf"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate"
)

// Inspection is one pool as a start of the sidecar would find it now.
type Inspection struct {
	// Pool is its name.
	Pool string
	// Network is its configuration; ConfErr is why there is none.
	Network cniconf.Network
	ConfErr error
	// NetNSErr is why --cni-netns is refused.
	NetNSErr error
	// Guard says who serves the network on this node, as far as this network
	// namespace shows; empty for nobody.
	Guard string
	// Plugin is what is behind the network.
	Plugin delegate.Inspection
}

// Inspect finds for each pool what Run would find before its first ADD, by the same
// code. It makes and changes nothing, and runs no plugin verb but VERSION. The error
// is that no plugin can be run with these options.
func (c Config) Inspect(ctx context.Context) ([]Inspection, error) {
	options := c.plugin()
	netnsErr := delegate.CheckNetNS(options.NetNS)
	if netnsErr != nil {
		options.NetNS = "" // what is found without it is true all the same
	}
	runner, runnerErr := delegate.New(options)
	conf, confErr := cniconf.New(cniconf.Options{Dir: c.CNIConfDir, File: c.CNIConfFile, Pools: c.Pools, Log: silent()})
	if err := errors.Join(runnerErr, confErr); err != nil {
		return nil, err
	}
	var all []Inspection
	for _, pool := range c.poolNames() {
		e := Inspection{Pool: pool, NetNSErr: netnsErr}
		if e.Network, e.ConfErr = conf.Network(pool); e.ConfErr == nil {
			e.Guard = holderOf(guardName(c.NodeName, e.Network.Name))
			e.Plugin = runner.Inspect(ctx, network(e.Network))
		}
		all = append(all, e)
	}
	return all, nil
}

// silent is for who is told everything by other ways.
func silent() logrus.FieldLogger {
	l := logrus.New()
	l.SetOutput(io.Discard)
	return l
}
