package delegate

import (
	"context"
	"fmt"
	"os"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/profile"
)

// Inspection is what Context finds, step by step, so that one step that fails
// hides no other.
type Inspection struct {
	// Plugin is the plugin's type, Profile what is known of it; both are empty if the
	// configuration does not say it.
	Plugin  string
	Profile profile.Profile
	// Binary is the plugin's executable; FindErr is why there is none.
	Binary  string
	FindErr error
	// Versions are what the plugin says it knows, and CNIVersion the one that calls
	// use; VersionErr is why there is none. It wraps a *call.Error if VERSION failed.
	Versions   []string
	CNIVersion string
	VersionErr error
	// StateDir is where the plugin keeps its state, and StateKey the key of ipam that
	// says so; empty if it keeps none in files. StateErr is why Context refuses it.
	StateDir, StateKey string
	StateErr           error
	// NetNS is CNI_NETNS of calls; NetNSErr is why there is none.
	NetNS    string
	NetNSErr error
	// Err is what Context says; nil if an ADD could be made.
	Err error
}

// Inspect does what Context does for a network, and runs no verb but VERSION.
func (r *Runner) Inspect(ctx context.Context, n call.Network) Inspection {
	c, err := r.NewInvocation(ctx, n, "", "")
	e := Inspection{Plugin: c.Plugin, Profile: c.Profile, Err: err}
	object, err := parseNetwork(n)
	if err != nil || e.Profile.Type == "" {
		return e
	}
	if e.Binary, e.FindErr = r.find(e.Plugin); e.FindErr == nil {
		e.CNIVersion, e.VersionErr = r.negotiate(ctx, e.Plugin, e.Binary)
		e.Versions = r.supported(e.Binary)
	}
	e.StateDir, e.StateKey = e.Profile.StateDir(object["ipam"])
	e.StateErr = r.checkStateDir(e.Profile, object)
	e.NetNS, e.NetNSErr = r.namespace(e.Profile, e.Plugin)
	return e
}

// supported are the versions that a binary has named when it was last asked.
func (r *Runner) supported(binary string) []string {
	info, err := os.Stat(binary)
	if err != nil {
		return nil
	}
	versions, _ := r.versions.get(binary, info)
	return versions
}

// CheckNetNS refuses a --cni-netns that is a namespace of our own (docs/plugins.md,
// Network namespaces), or no absolute path; EphemeralNetNS is none.
func CheckNetNS(path string) error { return findOwnNetNS().check(path) }

func (own ownNetNS) check(path string) error {
	if path == EphemeralNetNS {
		return nil
	}
	if err := own.refuse(path); err != nil {
		return fmt.Errorf("--cni-netns: %w", err)
	}
	return nil
}
