package check

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/cniconf"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// storeDir returns the directory in which host-local keeps the addresses of a pool's network.
// The error names the file or the fact from which it cannot be derived.
func storeDir(p *models.PoolStatus) (string, error) {
	network, err := readNetwork(p)
	if err != nil {
		return "", err
	}
	var object struct {
		IPAM json.RawMessage `json:"ipam"`
	}
	if err := json.Unmarshal(network.PluginConfig, &object); err != nil {
		return "", fmt.Errorf("%s: %w", p.File, err)
	}
	facts := profile.Profile{StateDirKey: ProfileFact(p, "stateDirKey"), DefaultStateDir: ProfileFact(p, "defaultStateDir")}
	dir, key := facts.StateDir(object.IPAM)
	if dir == "" {
		return "", fmt.Errorf("profile %q of plugin %s does not name the directory of its state; expected stateDirKey and defaultStateDir", p.Profile, p.Plugin)
	}
	if !filepath.IsAbs(dir) {
		return "", fmt.Errorf("ipam.%s in %s is %q; expected an absolute path: a relative one depends on the working directory of the plugin", key, p.File, dir)
	}
	return filepath.Join(dir, p.Network), nil
}

// readNetwork reads the network of a pool from the file that the sidecar uses.
func readNetwork(p *models.PoolStatus) (call.Network, error) {
	w, err := cniconf.New(cniconf.Options{File: p.File, Pools: map[string]string{p.Pool: p.Network}})
	if err != nil {
		return call.Network{}, err
	}
	return w.Network(p.Pool)
}
