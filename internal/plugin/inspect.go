package plugin

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/hostlocal"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// Inspection is what the profile of a network's plugin says of its configuration.
type Inspection struct {
	// Profile is the profile; empty if it is not known, as is the rest.
	Profile profile.Profile
	// StateDir is the directory of the plugin's state, and StateKey the key of ipam that names it;
	// both are empty if it keeps no state in files.
	StateDir, StateKey string
	// Missing are the required files of the profile of which no path exists, with Paths as the
	// network configures them.
	Missing []profile.Requirement
	// NetNS is CNI_NETNS of calls; empty if there is none.
	NetNS string
}

// Inspect returns what the profile of a network's plugin says of its configuration. It runs nothing.
func (r *Runner) Inspect(n call.Network) (found Inspection) {
	profiles, err := r.opts.Profiles()
	object, objectErr := parsePluginObject(n.PluginConfig)
	if err != nil || objectErr != nil {
		return found
	}
	found.Profile = profiles.For(n.IPAMType)
	found.StateDir, found.StateKey = found.Profile.StateDir(object["ipam"])
	found.Missing = missing(found.Profile.Required(object["ipam"]))
	found.NetNS, _ = r.namespace(found.Profile)
	return found
}

// CheckSockets returns which socket that the profile of a network's plugin requires has no listener, so that no ADD can
// succeed; nil for none.
func (r *Runner) CheckSockets(n call.Network) error {
	for _, m := range r.Inspect(n).Missing {
		if m.Kind == profile.RequireSocket {
			return wrapNetworkErr(n, fmt.Errorf("plugin %s needs the socket %s (ipam.%s names another), on which no process listens: %s", n.IPAMType, m.Paths[0], m.Key, m.Why))
		}
	}
	return nil
}

// missing returns the requirements of which no path exists as what it must be.
func missing(required []profile.Requirement) []profile.Requirement {
	exists := func(r profile.Requirement) bool {
		return slices.ContainsFunc(r.Paths, func(path string) bool { return existsAs(r.Kind, path) })
	}
	return slices.DeleteFunc(slices.Clone(required), exists)
}

// socketTimeout is how long a socket may take to accept a connection. Only one whose queue is full takes any time.
const socketTimeout = time.Second

func existsAs(kind profile.RequirementKind, path string) bool {
	if kind == profile.RequireSocket {
		c, err := net.DialTimeout("unix", path, socketTimeout)
		if err != nil {
			return false
		}
		_ = c.Close()
		return true
	}
	info, err := os.Stat(path)
	return err == nil && info.IsDir() == (kind == profile.RequireDirectory)
}

// StoredLease is what the store of a plugin has for one address.
type StoredLease struct {
	hostlocal.Lease
	// File has it, since Written.
	File    string
	Written time.Time
}

// Lease returns what the store of a network's plugin has for an address, to any client; an error that wraps
// fs.ErrNotExist if it has nothing. It runs no plugin and takes no lock.
func (r *Runner) Lease(n call.Network, ip netip.Addr) (StoredLease, error) {
	found := r.Inspect(n)
	dir := filepath.Join(found.StateDir, n.Name)
	switch {
	case !found.Profile.LikeHostLocal():
		return StoredLease{}, fmt.Errorf("the leases of plugin %s cannot be read", n.IPAMType)
	case !filepath.IsAbs(found.StateDir) || !filepath.IsLocal(n.Name):
		return StoredLease{}, fmt.Errorf("ipam.%s of network %q is %q; expected an absolute path", found.StateKey, n.Name, found.StateDir)
	}
	root, err := hostlocal.OpenDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return StoredLease{}, fmt.Errorf("%s does not exist: it is not mounted here, or has had no lease yet", dir) // not certain
	}
	if err != nil {
		return StoredLease{}, err
	}
	defer root.Close()
	s := StoredLease{File: filepath.Join(dir, ip.String())}
	if s.Lease, err = hostlocal.Read(root, ip); err != nil {
		return StoredLease{}, err
	}
	if info, err := root.Lstat(ip.String()); err == nil {
		s.Written = info.ModTime()
	}
	return s, nil
}
