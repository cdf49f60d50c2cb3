// Package profile is what is known of a plugin type: what its verbs really
// mean (docs/plugins.md, What a profile says). Profiles are data, one embedded file a type; a
// type without a file gets the conservative "unknown".
package profile

import (
	"slices"
	"strings"
)

// RepeatedAdd is what a second ADD with the same container ID does.
type RepeatedAdd string

// The answers that plugins give to a repeated ADD (docs/plugins.md, Which plugin works how).
const (
	RepeatedAddRefused        RepeatedAdd = "refused"
	RepeatedAddSameAnswer     RepeatedAdd = "same-answer"
	RepeatedAddAnotherAddress RepeatedAdd = "another-address"
)

// Verify is how a held attachment is verified.
type Verify string

const (
	// VerifyCheck asks by CHECK, where the CNI version has it.
	VerifyCheck Verify = "check"
	// VerifyAdd asks by an ADD, which returns what is held.
	VerifyAdd Verify = "add"
	// VerifyNothing asks nothing: the journal decides.
	VerifyNothing Verify = "nothing"
)

// CheckProves is what a CHECK that succeeds proves.
type CheckProves string

const (
	// ProvesAddress: the plugin compared the address of prevResult.
	ProvesAddress CheckProves = "address"
	// ProvesPresence: the ID holds something, not which address. After a
	// reboot that proves nothing (the plugin may have lost its last writes).
	ProvesPresence CheckProves = "presence"
	// ProvesNothing: CHECK says yes whatever it is asked; it is never believed.
	ProvesNothing CheckProves = "nothing"
)

// Del is what a DEL that succeeded means.
type Del string

const (
	// DelReleased: the addresses are free.
	DelReleased Del = "released"
	// DelQueued: they will be, at any later time: each ADD uses an ID that was never
	// used before, or a late DEL would release what a new ADD got.
	DelQueued Del = "queued"
	// DelUnproved: it may have freed nothing. Such a plugin leaks by itself, so
	// its profile must say why it is unsafe.
	DelUnproved Del = "unproved"
)

// Store is where a plugin keeps its allocations.
type Store string

const (
	// StoreNode: on the node. A reboot may lose its last writes, and ends every
	// process that could still change it.
	StoreNode Store = "node"
	// StoreRemote: on a server. A reboot of the node loses nothing there, and ends
	// nothing that an ADD or DEL has begun there.
	StoreRemote Store = "remote"
)

// Lookup is how the plugin's store can be read without running a verb.
type Lookup string

const (
	// LookupNone: it cannot be.
	LookupNone Lookup = "none"
	// LookupHostLocal reads host-local's lease files: one file per address in
	// dataDir/<network>, with container ID and interface name
	// (plugins/ipam/host-local/backend/disk/backend.go).
	LookupHostLocal Lookup = "host-local-leases"
)

// RequestForm is how a requested address is written.
type RequestForm string

const (
	// FormAddress is the bare address.
	FormAddress RequestForm = "address"
	// FormCIDR is the address with a prefix length, as of its full length.
	FormCIDR RequestForm = "cidr"
)

// Namespace is which CNI_NETNS the plugin works with.
type Namespace string

const (
	// NamespaceAny takes every path but the plugin's own namespace, also one
	// that does not exist.
	NamespaceAny Namespace = "any"
	// NamespaceEphemeral wants a real one, which may be gone after the call.
	NamespaceEphemeral Namespace = "ephemeral"
	// NamespaceLink wants a given one that has the interface in it and lasts.
	NamespaceLink Namespace = "link"
)

// Request is a convention by which an ADD asks for an address.
type Request string

// The three conventions (CNI CONVENTIONS.md, "ips" and CNI_ARGS IP).
const (
	RequestRuntimeConfig Request = "runtimeConfig.ips"
	RequestArgsCNI       Request = "args.cni.ips"
	RequestCNIArgs       Request = "CNI_ARGS"
)

// PodIdentity is which K8S_POD_* keys CNI_ARGS carries.
type PodIdentity string

const (
	// PodIdentityNone sends none.
	PodIdentityNone PodIdentity = "none"
	// PodIdentitySynthetic sends a pod name unique to the attachment.
	PodIdentitySynthetic PodIdentity = "synthetic"
	// PodIdentityGiven sends the pod that an owner "namespace/pod" names, and a
	// synthetic one for every other owner.
	PodIdentityGiven PodIdentity = "given"
)

// Lost describes the one answer of CHECK that means "not held". Everything
// else is "could not ask" (docs/how-it-works.md, Verify and profiles). An empty one
// describes no answer.
type Lost struct {
	// Codes are the CNI error codes of such an answer; empty for any code from MinCode on.
	Codes []uint `json:"codes,omitempty"`
	// MinCode is the lowest code of such an answer; codes below 100 are CNI's own.
	MinCode uint `json:"minCode,omitempty"`
	// Message must occur in the error's message or details; empty for any.
	Message string `json:"message,omitempty"`
}

func (l Lost) empty() bool { return len(l.Codes) == 0 && l.MinCode == 0 && l.Message == "" }

// Profile is what is known of one plugin type.
type Profile struct {
	// Type is the plugin type, such as "host-local"; "unknown" for the conservative one.
	Type string `json:"type"`
	// RepeatedAdd is what a second ADD with the same container ID does.
	RepeatedAdd RepeatedAdd `json:"repeatedAdd"`
	// VerifyBy is how a held attachment is verified.
	VerifyBy Verify `json:"verifyBy"`
	// CheckProves is what a CHECK that succeeds proves.
	CheckProves CheckProves `json:"checkProves"`
	// Lost is how a CHECK says no; empty unless it is asked.
	Lost Lost `json:"lost"`
	// AddOutlivesSeconds is how long an ADD may still allocate after its process was
	// ended or lost (a daemon behind it goes on); a DEL before that proves nothing.
	AddOutlivesSeconds int `json:"addOutlivesSeconds"`
	// DelOutlivesSeconds is how long a DEL whose outcome is unknown may still release
	// after its process was ended or lost; no ADD uses the container ID before that.
	// A profile without it gets AddOutlivesSeconds.
	DelOutlivesSeconds int `json:"delOutlivesSeconds"`
	// Del is what a DEL that succeeded means.
	Del Del `json:"del"`
	// Store is where the plugin keeps its allocations.
	Store Store `json:"store"`
	// Lookup is how they can be read without running a verb.
	Lookup Lookup `json:"lookup"`
	// WaitsForConfig: the plugin does nothing before it has read the whole of its
	// configuration. Its process can then be started before its call.
	WaitsForConfig bool `json:"waitsForConfig"`
	// Requests are the honoured conventions for a requested address, best first; empty for none.
	Requests []Request `json:"requests,omitempty"`
	// RequestForm is how they are written; empty if there are none.
	RequestForm RequestForm `json:"requestForm,omitempty"`
	// PodIdentity is which K8S_POD_* keys CNI_ARGS carries.
	PodIdentity PodIdentity `json:"podIdentity"`
	// Namespace is which CNI_NETNS the plugin works with.
	Namespace Namespace `json:"namespace"`
	// StateDirKey is the key of ipam that names the folder of the plugin's state, and
	// DefaultStateDir that folder where the key is not set; empty for a plugin that
	// keeps no state in files.
	StateDirKey     string `json:"stateDirKey,omitempty"`
	DefaultStateDir string `json:"defaultStateDir,omitempty"`
	// Unique: the plugin never gives one address to two attachments. One that
	// does by design is believed to, and nobody is alarmed.
	Unique bool `json:"unique"`
	// Unsafe says why the plugin loses or doubles addresses whatever we do;
	// empty for one that does not. It is refused without --accept-unsafe-plugin.
	Unsafe string `json:"unsafe,omitempty"`
	// Sources say where the facts come from.
	Sources []string `json:"sources,omitempty"`
}

// IsLost tells whether a well-formed error of CHECK means that the plugin
// does not hold the attachment. Inputs are the plugin's code, message and details.
func (p Profile) IsLost(code uint, msg, details string) bool {
	if p.Lost.empty() || code == 0 || code < p.Lost.MinCode {
		return false
	}
	if len(p.Lost.Codes) > 0 && !slices.Contains(p.Lost.Codes, code) {
		return false
	}
	return strings.Contains(msg, p.Lost.Message) || strings.Contains(details, p.Lost.Message)
}
