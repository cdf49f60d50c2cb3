package client

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// Status is the state of the sidecar.
type Status struct {
	// Version is the sidecar's version, NodeName the name of its node.
	Version  string `json:"version"`
	NodeName string `json:"node-name"`
	// Started is when the process started.
	Started time.Time `json:"started"`
	// Ready reports whether addresses can be allocated; Reasons are why not, empty if they can.
	Ready   bool     `json:"ready"`
	Reasons []string `json:"reasons"`
	// Since is when a check first observed the present value of Ready; zero if that is not known.
	Since time.Time `json:"since"`
	// Pools are all pools, by name.
	Pools []PoolStatus `json:"pools"`
	// Attachments is the number of attachments in each state.
	Attachments map[State]int `json:"attachments"`
	// OldestPendingRelease is the attachment that waits longest for its DEL; nil if none does.
	OldestPendingRelease *PendingRelease `json:"oldest-pending-release"`
	// LastError is the last failure since the start; nil if there was none, or after a success of the same
	// attachment.
	LastError *LastError `json:"last-error"`
	// MovedPlugins are recorded plugin executables that do not exist any more.
	MovedPlugins []MovedPlugin `json:"moved-plugins"`
	// Quarantined are records that could not be read and were put aside.
	Quarantined []QuarantinedRecord `json:"quarantined"`
	// Counters are counts of unusual events since the start, by name, such as "lost" or "duplicates".
	Counters map[string]int64 `json:"counters"`
	// Options are the options of serve, by name.
	Options []OptionValue `json:"options"`
	// Raw is the JSON of the whole answer, with the parts that Cilium's own clients read:
	// StatusResponse of swagger.yaml.
	Raw json.RawMessage `json:"-"`
}

// PoolStatus is one pool and its plugin.
type PoolStatus struct {
	// Pool is the name of the pool.
	Pool string `json:"pool"`
	// Network is the CNI network in use, File its configuration file.
	Network string `json:"network"`
	File    string `json:"file"`
	// Plugin is the type of the IPAM plugin, Binary the path of its executable.
	Plugin string `json:"plugin"`
	Binary string `json:"binary"`
	// CNIVersion is the CNI version of the calls; PluginVersions are those that the plugin supports,
	// empty before it was asked.
	CNIVersion     string   `json:"cni-version"`
	PluginVersions []string `json:"plugin-versions"`
	// Profile is the name of the plugin's profile, ProfileFacts its fields (docs/reference/profiles.md).
	Profile      string         `json:"profile"`
	ProfileFacts map[string]any `json:"profile-facts"`
	// Verification is how held attachments are verified; nil while the plugin is not known.
	Verification *Verification `json:"verification"`
	// Error is why the present configuration cannot be used, and NotReady why the plugin cannot
	// serve now (STATUS); empty if there is no such reason.
	Error    string `json:"error"`
	NotReady string `json:"not-ready"`
	// Since is when a check first observed the present state of the pool; zero if that is not known.
	Since time.Time `json:"since"`
}

// Verification is how the held attachments of a pool are verified.
type Verification struct {
	// By is "lookup", "check", "add" or "nothing".
	By string `json:"by"`
	// Reason is why a lookup that the profile has is not used; otherwise empty.
	Reason string `json:"reason"`
}

// PendingRelease is a release that the plugin has not confirmed.
type PendingRelease struct {
	// Owner, Pool and ContainerID identify the attachment.
	Owner       string `json:"owner"`
	Pool        string `json:"pool"`
	ContainerID string `json:"container-id"`
	// Since is when it was released.
	Since time.Time `json:"since"`
	// LastError is why the last DEL failed; empty if none has.
	LastError string `json:"last-error"`
}

// LastError is a failure.
type LastError struct {
	// Text is the failure, Time when it happened.
	Text string    `json:"text"`
	Time time.Time `json:"time"`
	// Owner, Pool and ContainerID identify the attachment; empty if it was of none.
	Owner       string `json:"owner"`
	Pool        string `json:"pool"`
	ContainerID string `json:"container-id"`
}

// MovedPlugin is a recorded plugin executable that does not exist any more.
type MovedPlugin struct {
	// Pool is the pool of the attachments, Plugin the type of the plugin.
	Pool   string `json:"pool"`
	Plugin string `json:"plugin"`
	// Binary is the recorded path, Executable the path that is used instead; empty if there is none.
	Binary     string `json:"binary"`
	Executable string `json:"executable"`
	// Error is why there is none, and what to do.
	Error string `json:"error"`
}

// QuarantinedRecord is a record that could not be read and was put aside.
type QuarantinedRecord struct {
	// File is its path, Reason why it could not be read.
	File   string `json:"file"`
	Reason string `json:"reason"`
	// Since is when it was put aside or found; zero if that is not known.
	Since time.Time `json:"since"`
	// Version is the format version of a record that only a newer version of the sidecar
	// understands. Such a record is not put aside, and may hold addresses. 0 for any other.
	Version int `json:"version"`
}

// OptionValue is one option of serve.
type OptionValue struct {
	// Name is the name of its flag, without "--", and Value its value as the flag accepts it.
	Name  string `json:"name"`
	Value string `json:"value"`
	// Source is where the value comes from: "flag", "environment", "config-dir" or "default".
	Source string `json:"source"`
}

// Status returns the state of the sidecar (GET /healthz). The sidecar answers within half a second,
// also if the plugin or the disk hangs. Every process that can open the socket may ask.
//
// Errors: [ErrNotSidecar], and those of the connection. A sidecar that is not ready is not an error.
func (c *Client) Status(ctx context.Context) (*Status, error) {
	var raw json.RawMessage
	if err := c.send(ctx, request{method: http.MethodGet, path: "/healthz"}, readAll(&raw)); err != nil {
		return nil, err
	}
	var answer struct {
		Extension *Status `json:"delegated-ipam"`
	}
	if err := json.Unmarshal(raw, &answer); err != nil {
		return nil, c.failed(err)
	}
	if answer.Extension == nil {
		return nil, c.failed(notSidecar(`the status has no part "delegated-ipam"`))
	}
	answer.Extension.Raw = raw
	return answer.Extension, nil
}
