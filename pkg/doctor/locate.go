package doctor

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/pkg/cniconf"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/profile"
)

// hostLocal is the type of the plugin whose files are known.
const hostLocal = "host-local"

// locate returns the folder in which host-local keeps the addresses of a pool's
// network. The error names the file or fact that does not say it.
func locate(p *models.PoolStatus) (string, error) {
	config, err := readNetwork(p)
	if err != nil {
		return "", err
	}
	var object struct {
		IPAM json.RawMessage `json:"ipam"`
	}
	if err := json.Unmarshal(config.PluginConfig, &object); err != nil {
		return "", fmt.Errorf("%s: %w", p.File, err)
	}
	facts := profile.Profile{StateDirKey: fact(p, "stateDirKey"), DefaultStateDir: fact(p, "defaultStateDir")}
	dir, key := facts.StateDir(object.IPAM)
	if dir == "" {
		return "", fmt.Errorf("the profile %q of plugin %s does not say where its state is; expected stateDirKey and defaultStateDir", p.Profile, p.Plugin)
	}
	if !filepath.IsAbs(dir) {
		return "", fmt.Errorf("ipam.%s in %s is %q; expected an absolute path: what a relative one means depends on who runs the plugin", key, p.File, dir)
	}
	return filepath.Join(dir, p.Network), nil
}

// readNetwork reads the network of a pool from the file that the sidecar has it from.
func readNetwork(p *models.PoolStatus) (cniconf.Network, error) {
	// Its error says all that the log would.
	silent := logrus.New()
	silent.SetOutput(io.Discard)
	w, err := cniconf.New(cniconf.Options{File: p.File, Pools: map[string]string{p.Pool: p.Network}, Log: silent})
	if err != nil {
		return cniconf.Network{}, err
	}
	return w.Network(p.Pool)
}

// fact is a fact of the pool's profile that is a text; empty if there is none.
func fact(p *models.PoolStatus, name string) string {
	text, _ := p.ProfileFacts[name].(string)
	return text
}
