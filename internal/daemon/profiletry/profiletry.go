// Package profiletry determines the behaviour of a CNI IPAM plugin: it runs the plugin's verbs on scratch
// container IDs in a safe order, releases everything again, and proposes a profile from its
// observations (docs/reference/profiles.md, Try a plugin). It does not run processes itself.
package profiletry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// Plugin runs the verbs of the plugin. *plugin.Runner implements it.
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

// Options are the input of Run.
type Options struct {
	Plugin Plugin
	// Network has the plugin's type (IPAMType).
	Network call.Network
	// Profile is the profile in use (ProfileFor).
	Profile profile.Profile
	// IDPrefix begins each container ID (NewIDPrefix).
	IDPrefix string
}

// ProfileFor returns the profile with which a plugin type is tried. A type without a profile gets a
// pod: a plugin that needs one would release nothing without it.
func ProfileFor(set profile.Set, pluginType string) profile.Profile {
	p := set.For(pluginType)
	if p.Type != pluginType {
		p.PodIdentity = profile.PodIdentitySynthetic
	}
	return p
}

// ownProfile reports whether the profile in use is that of the plugin's type.
func (o Options) ownProfile() bool { return o.Profile.Type == o.Network.IPAMType }

// Report is the result of Run.
type Report struct {
	// Type is the plugin's type, Network the name of the network, and Binary the plugin's executable.
	Type    string `json:"type"`
	Network string `json:"network"`
	Binary  string `json:"binary,omitempty"`
	// Versions are the CNI versions that the plugin supports, and CNIVersion the one of its calls.
	Versions   []string `json:"versions"`
	CNIVersion string   `json:"cni-version,omitempty"`
	// Profile is the type of the profile in use.
	Profile string `json:"profile"`
	// Steps are the calls in their order, with the release at the end.
	Steps []Step `json:"steps"`
	// Facts have each field of the proposal, in the order of profile.Profile; none without a
	// proposal.
	Facts []Fact `json:"facts"`
	// Proposal is the proposed profile; nil if the steps ended early.
	Proposal *profile.Profile `json:"proposal"`
	// Differences are the fields in which the proposal differs from the profile of the type; none
	// if the type has no profile.
	Differences []Difference `json:"differences"`
	Notes       []string     `json:"notes"`
	// Leftovers are the container IDs that could not be released.
	Leftovers []Leftover `json:"leftovers"`
}

// Succeeded is the Step.Outcome of a call without an error.
const Succeeded = "success"

// Step is one call of the plugin.
type Step struct {
	Verb string `json:"verb"`
	// ContainerID is CNI_CONTAINERID; empty for STATUS.
	ContainerID string `json:"container-id,omitempty"`
	// Purpose is the question that the step answers.
	Purpose string `json:"purpose"`
	// Outcome is Succeeded or a call.Outcome.
	Outcome string `json:"outcome"`
	// Addresses are the result of an ADD.
	Addresses []string `json:"addresses,omitempty"`
	// Code is the code of the plugin's error; 0 if it returned none.
	Code  uint   `json:"code,omitempty"`
	Error string `json:"error,omitempty"`
}

// Origins of a Fact.
const (
	FromStep    = "tried"   // a step has determined it
	FromProfile = "profile" // it is taken from the profile in use
)

// Fact is one field of the proposal.
type Fact struct {
	// Field is its name in the JSON of a profile, and Value its value.
	Field string          `json:"field"`
	Value json.RawMessage `json:"value"`
	// From is FromStep or FromProfile.
	From string `json:"from"`
	// Reason is the observation, if any.
	Reason string `json:"reason"`
}

// Difference is one field in which the proposal differs from the profile of the type.
type Difference struct {
	// Field is its name in the JSON of a profile, Profile and Proposal are its values.
	Field    string          `json:"field"`
	Profile  json.RawMessage `json:"profile"`
	Proposal json.RawMessage `json:"proposal"`
	// Reason is the observation.
	Reason string `json:"reason"`
}

// Leftover is a container ID that may still hold an address, or may hold one later.
type Leftover struct {
	ContainerID string `json:"container-id"`
	// Reason is why it could not be released.
	Reason string `json:"reason"`
	// AfterSeconds is how many seconds after the end of Run the command must be run at the earliest.
	AfterSeconds int `json:"after-seconds"`
	// Command is the shell command that releases it: the exact DEL.
	Command string `json:"command"`
}

type run struct {
	Options
	report Report
	// err ends the steps early: each further one does nothing.
	err error
	// scratches are the container IDs in the order of their first use.
	scratches []*scratch
	seen      evidence
	// errors are those of all steps.
	errors []*call.Error

	// proposal begins as a copy of the profile in use.
	proposal profile.Profile
	// facts has origin and reason of each field (its JSON name) that the steps can determine.
	facts map[string]Fact
}

// Run tries a plugin. In every case it ends with a DEL of each container ID that may hold an
// address. The report is valid with an error, too. Errors: the plugin cannot be run in the network,
// the steps ended early (no proposal), or something could not be released (Report.Leftovers). If ctx is
// done, no further step is begun but that release.
func Run(ctx context.Context, o Options) (Report, error) {
	r := &run{Options: o, proposal: o.Profile, facts: map[string]Fact{}, report: Report{
		Type: o.Network.IPAMType, Network: o.Network.Name, Profile: o.Profile.Type,
		Versions: []string{}, Steps: []Step{}, Facts: []Fact{}, Differences: []Difference{}, Notes: []string{}, Leftovers: []Leftover{},
	}}
	r.observe(ctx)
	r.releaseAll(context.WithoutCancel(ctx))
	err := r.err
	if err == nil {
		err = r.propose()
	}
	return r.report, errors.Join(err, r.leftoverErr())
}

func (r *run) stop(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("trying %s ended early, and proposes no profile: %w", r.Network.IPAMType, fmt.Errorf(format, args...))
	}
}
