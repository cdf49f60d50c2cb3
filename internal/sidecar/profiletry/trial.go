// Package profiletry determines the behaviour of a CNI IPAM plugin: it runs the plugin's verbs on scratch
// container IDs in a safe order, releases everything again, and proposes a profile from its
// observations (docs/reference/profiles.md, Try a plugin). It does not run processes itself.
package profiletry

import (
	"context"
	"errors"
	"fmt"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// Plugin runs the verbs of the plugin. *delegate.Runner implements it.
type Plugin interface {
	// NewInvocation returns the invocation of a container ID in a network. It runs VERSION.
	NewInvocation(ctx context.Context, n call.Network, containerID, owner string) (call.Invocation, error)
	// Versions returns the CNI versions of a binary whose VERSION has been run.
	Versions(binary string) []string
	// Add, Del, Check and Status run the verbs. Their errors are *call.Error.
	Add(ctx context.Context, c call.Call) (call.Result, error)
	Del(ctx context.Context, c call.Call) error
	Check(ctx context.Context, c call.Call) error
	Status(ctx context.Context, inv call.Invocation) error
	// Held returns an invocation for each container ID with a prefix that holds addresses by the
	// plugin's store; an error if the store cannot be read.
	Held(inv call.Invocation, prefix string) ([]call.Invocation, error)
	// CommandLine returns a shell command that repeats a call manually.
	CommandLine(verb string, c call.Call) string
}

// Options are the input of a trial.
type Options struct {
	// Plugin runs the verbs.
	Plugin Plugin
	// Network is the network in which the plugin is tried.
	Network call.Network
	// Type is the plugin's type.
	Type string
	// Profile is the profile in use: that of the type, or profile.Unknown.
	Profile profile.Profile
	// IDPrefix begins each container ID of the trial (NewIDPrefix).
	IDPrefix string
}

// ownProfile reports whether the profile in use is that of the type.
func (o Options) ownProfile() bool { return o.Profile.Type == o.Type }

// Report is the result of a trial.
type Report struct {
	// Type is the plugin's type, Network the name of the network.
	Type    string `json:"type"`
	Network string `json:"network"`
	// Binary is the plugin's executable.
	Binary string `json:"binary,omitempty"`
	// Versions are the CNI versions that the plugin supports, and CNIVersion the one of its calls.
	Versions   []string `json:"versions"`
	CNIVersion string   `json:"cni-version,omitempty"`
	// Profile is the type of the profile in use.
	Profile string `json:"profile"`
	// Steps are the calls in their order, those of the release at the end included.
	Steps []Step `json:"steps"`
	// Facts have each field of the proposal, in the order of profile.Profile; none without a
	// proposal.
	Facts []Fact `json:"facts"`
	// Proposal is the proposed profile; nil if the trial ended early.
	Proposal *profile.Profile `json:"proposal"`
	// Differences are the fields in which the proposal differs from the profile of the type; none
	// if the type has no profile.
	Differences []Difference `json:"differences"`
	// Notes are further facts for the reader.
	Notes []string `json:"notes"`
	// Leftovers are the container IDs that the trial could not release.
	Leftovers []Leftover `json:"leftovers"`
}

// Run tries a plugin. In every case it ends with a DEL of each container ID that may hold an
// address. The report is valid with an error, too. Errors: the plugin cannot be run in the network,
// the trial ended early (no proposal), some fact could not be tried, or something could not be
// released (Report.Leftovers). If ctx is done, no further step is begun but that release.
func Run(ctx context.Context, o Options) (Report, error) {
	t := &trial{Options: o, report: Report{
		Type: o.Type, Network: o.Network.Name, Profile: o.Profile.Type,
		Versions: []string{}, Steps: []Step{}, Facts: []Fact{}, Differences: []Difference{}, Notes: []string{}, Leftovers: []Leftover{},
	}}
	err := t.observe(ctx)
	t.releaseAll(context.WithoutCancel(ctx))
	if err == nil {
		err = t.propose()
	}
	return t.report, errors.Join(err, t.leftoverErr())
}

// trial is the state of one trial.
type trial struct {
	Options
	report Report
	// scratches are the container IDs in the order of their first use.
	scratches []*scratch
	// noAdd is the reason against further ADDs; empty if they are allowed.
	noAdd string
	seen  evidence
}

// stop returns the error of a trial that cannot continue.
func (t *trial) stop(format string, args ...any) error {
	return fmt.Errorf("the trial of %s ended early, and proposes no profile: %w", t.Type, fmt.Errorf(format, args...))
}

func (t *trial) note(format string, args ...any) {
	t.report.Notes = append(t.report.Notes, fmt.Sprintf(format, args...))
}
