// Package profile has the profiles of plugin types: what the verbs of a type really do
// (docs/reference/profiles.md, Profile fields). Profiles are data, one embedded file for each type; a type
// without a file gets the conservative profile "unknown".
package profile

import (
	"slices"
	"strings"
)

// RepeatedAdd is what a second ADD with the same container ID does.
type RepeatedAdd string

const (
	RepeatedAddRefused        RepeatedAdd = "refused"
	RepeatedAddSameAnswer     RepeatedAdd = "same-answer"     // it returns the held addresses
	RepeatedAddAnotherAddress RepeatedAdd = "another-address" // it allocates once more
)

// Verify is how a held attachment is verified.
type Verify string

const (
	VerifyCheck   Verify = "check"   // by CHECK, where the CNI version has it
	VerifyAdd     Verify = "add"     // by ADD, which returns the held addresses
	VerifyNothing Verify = "nothing" // not by the plugin; the journal decides
)

// CheckProves is what a CHECK that succeeds proves.
type CheckProves string

const (
	ProvesAddress CheckProves = "address" // the plugin compared the address of prevResult
	// ProvesPresence: the container ID holds an address, not which one. After a reboot that proves
	// nothing, because the plugin may have lost its last writes.
	ProvesPresence CheckProves = "presence"
	ProvesNothing  CheckProves = "nothing" // CHECK always succeeds, or is not called
)

// KeyedBy is what a plugin tells attachments apart by.
type KeyedBy string

const (
	KeyedByUnknown    KeyedBy = ""           // not known
	KeyedByAttachment KeyedBy = "attachment" // container ID and interface
	KeyedByContainer  KeyedBy = "container"  // container ID: DEL of one interface frees those of all
	KeyedByPod        KeyedBy = "pod"        // the pod: its next container gets the address of the previous one
	KeyedByNothing    KeyedBy = "nothing"    // the configuration alone decides
)

// DependsOnPod is on what of a pod the result of an ADD depends, beside the address.
type DependsOnPod string

const (
	DependsUnknown     DependsOnPod = ""          // not known: as DependsOnIdentity
	DependsOnNothing   DependsOnPod = "nothing"   // every pod gets any free address of the same ranges
	DependsOnIdentity  DependsOnPod = "identity"  // its namespace, name, labels or annotations
	DependsOnNamespace DependsOnPod = "namespace" // its network namespace: the ADD works in it
)

// Del is what a successful DEL means.
type Del string

const (
	DelReleased Del = "released" // the addresses are free
	// DelQueued: they are released at any later time. Each ADD uses a container ID that was never
	// used before, or a late DEL would release what a new ADD allocated.
	DelQueued Del = "queued"
)

// Store is where a plugin keeps its allocations.
type Store string

const (
	// StoreNode: on the node. A reboot may lose its last writes, and ends every process that could
	// still change it. Two nodes with one configuration allocate the same addresses.
	StoreNode Store = "node"
	// StoreRemote: on a server. A reboot of the node loses nothing there, and does not end what an
	// ADD or DEL has started there.
	StoreRemote Store = "remote"
)

// Lookup is how the plugin's store can be read without running a verb.
type Lookup string

const (
	LookupNone Lookup = "none" // not at all
	// LookupHostLocal: by host-local's lease files, one file per address in dataDir/<network>, with
	// container ID and interface name (plugins/ipam/host-local/backend/disk/backend.go).
	LookupHostLocal Lookup = "host-local-leases"
)

// RequestForm is how a requested address is written.
type RequestForm string

const (
	FormAddress RequestForm = "address" // the bare address
	FormCIDR    RequestForm = "cidr"    // the address with a prefix length
)

// Namespace is the kind of CNI_NETNS that the plugin works with.
type Namespace string

const (
	NamespaceAny  Namespace = "any"  // any path but the plugin's own namespace, also one that does not exist
	NamespaceLink Namespace = "link" // one that lasts, with the interface CNI_IFNAME in it
)

// Request is a convention by which an ADD requests an address.
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
	PodIdentityNone      PodIdentity = "none"
	PodIdentitySynthetic PodIdentity = "synthetic" // a pod name unique to the attachment
	// PodIdentityGiven: the pod that an owner "namespace/pod" names, and a synthetic one for any
	// other owner.
	PodIdentityGiven PodIdentity = "given"
)

// NetworkName is which names of a network the plugin works with.
type NetworkName string

const (
	NetworkNameAny NetworkName = "any" // also the meaning of an empty value
	// NetworkNameLabel: a DNS label (RFC 1123), because the plugin makes names of Kubernetes objects
	// of it.
	NetworkNameLabel NetworkName = "dns-label"
)

// StatusProves is what a STATUS that succeeds proves.
type StatusProves string

const (
	// StatusReadiness: the plugin can serve an ADD (CNI spec 1.1.0, section 2, "STATUS"); also the
	// meaning of an empty value.
	StatusReadiness StatusProves = "readiness"
	StatusNothing   StatusProves = "nothing" // STATUS always succeeds, so it is not called
)

// RequirementKind is the kind of a required file.
type RequirementKind string

const (
	RequireFile      RequirementKind = "file"
	RequireDirectory RequirementKind = "directory"
	RequireSocket    RequirementKind = "socket" // a unix socket on which a process listens
)

// Requirement is a file, directory or socket without which the plugin does not work.
type Requirement struct {
	Kind RequirementKind `json:"kind"`
	// Key is the key of ipam that names a further path; empty for none.
	Key string `json:"key,omitempty"`
	// Paths are absolute; one that exists is enough.
	Paths []string `json:"paths"`
	// OnHost reports that a pod must have it mounted from the host, because a process of the host
	// reads it.
	OnHost bool `json:"onHost,omitempty"`
	// Why is what fails without it.
	Why string `json:"why"`
}

// Lost describes the error of CHECK, or of DEL, that means "not held". Any other error means that the check
// failed (docs/design/how-it-works.md, Verify and profiles). One without a message describes no error:
// plugins built with CNI's library have one code for every error, such as an unreachable server.
type Lost struct {
	// Codes are the codes of such an error; empty for any of the plugin's own (FirstPluginCode).
	Codes []uint `json:"codes,omitempty"`
	// Message is a part of the error's message or details.
	Message string `json:"message,omitempty"`
}

// Profile is what is known about one plugin type.
type Profile struct {
	// Type is the plugin type, such as "host-local"; "unknown" for the conservative one.
	Type        string      `json:"type"`
	RepeatedAdd RepeatedAdd `json:"repeatedAdd"`
	VerifyBy    Verify      `json:"verifyBy"`
	CheckProves CheckProves `json:"checkProves"`
	KeyedBy     KeyedBy     `json:"keyedBy,omitempty"`
	// Depends must be "nothing" for leases that are acquired ahead for pods.
	Depends DependsOnPod `json:"dependsOnPod,omitempty"`
	// Lost is how a CHECK reports "not held"; empty unless attachments are verified by CHECK.
	Lost Lost `json:"lost"`
	// DelNotHeld is how a DEL reports that the plugin holds nothing under the container ID, for a plugin that refuses such a
	// DEL: it counts as a success. Empty for one that does not.
	DelNotHeld Lost `json:"delNotHeld,omitzero"`
	// AddOutlivesSeconds is how many seconds an ADD or DEL with an unknown outcome may still act
	// after its process was ended or lost, because a daemon behind it continues. Before that a DEL
	// after the ADD proves nothing, and no ADD uses the container ID of the DEL.
	AddOutlivesSeconds int   `json:"addOutlivesSeconds"`
	Del                Del   `json:"del"`
	Store              Store `json:"store"`
	// DelFromAnyNode reports that a DEL on any node releases what the ADD on another node allocated,
	// given the same container ID and configuration.
	DelFromAnyNode bool `json:"delFromAnyNode,omitempty"`
	// PerNodeKey is the key of ipam with which each node has a separate pool, so that
	// DelFromAnyNode does not hold; empty for none.
	PerNodeKey string `json:"perNodeKey,omitempty"`
	Lookup     Lookup `json:"lookup"`
	// Requests are the honoured conventions for a requested address, best first; empty for none.
	Requests []Request `json:"requests,omitempty"`
	// RequestForm is how requested addresses are written; empty if there are no Requests.
	RequestForm RequestForm `json:"requestForm,omitempty"`
	PodIdentity PodIdentity `json:"podIdentity"`
	Namespace   Namespace   `json:"namespace"`
	// StateDirKey is the key of ipam that names the directory of the plugin's state, and
	// DefaultStateDir the directory where the key is not set; both are empty for a plugin that keeps no
	// state in files.
	StateDirKey     string `json:"stateDirKey,omitempty"`
	DefaultStateDir string `json:"defaultStateDir,omitempty"`
	// Unique reports that the plugin never allocates one address to two attachments. A plugin that
	// does so by design raises no alarm.
	Unique      bool        `json:"unique"`
	NetworkName NetworkName `json:"networkName,omitempty"`
	// NetworkNameUnless has settings of the plugin object, as key=value, with any one of which every
	// name works.
	NetworkNameUnless []string     `json:"networkNameUnless,omitempty"`
	StatusProves      StatusProves `json:"statusProves,omitempty"`
	// DelGivesUpSeconds is after how many seconds a DEL whose backend does not respond reports
	// success without having released; 0 for never. The time limit of a call must be shorter.
	DelGivesUpSeconds int `json:"delGivesUpSeconds,omitempty"`
	// ReleaseFromAddress reports that DEL sends the release from the address itself. Where the address
	// is not local in CNI_NETNS, DEL succeeds and the plugin's server keeps the lease until it expires.
	ReleaseFromAddress bool          `json:"releaseFromAddress,omitempty"`
	Requires           []Requirement `json:"requires,omitempty"`
	// Dangers are the ways in which the plugin loses addresses or allocates them twice regardless of
	// the daemon; empty for a safe plugin. A plugin with dangers is refused without
	// --accept-unsafe-plugin.
	Dangers []string `json:"dangers,omitempty"`
	// TryUnsafe is why "profile try" must not run the plugin; empty if it may.
	TryUnsafe string   `json:"tryUnsafe,omitempty"`
	Sources   []string `json:"sources,omitempty"`
}

// IsLost reports whether a well-formed error of CHECK, by its code, message and details, means that
// the plugin does not hold the attachment.
func (p Profile) IsLost(code uint, msg, details string) bool {
	return p.Lost.matches(code, msg, details)
}

// IsNotHeld reports the same of an error of DEL.
func (p Profile) IsNotHeld(code uint, msg, details string) bool {
	return p.DelNotHeld.matches(code, msg, details)
}

func (l Lost) matches(code uint, msg, details string) bool {
	if l.Message == "" || code == 0 || len(l.Codes) > 0 && !slices.Contains(l.Codes, code) {
		return false
	}
	return strings.Contains(msg, l.Message) || strings.Contains(details, l.Message)
}

// NothingKnown reports that the plugin has no profile, and this is the conservative one.
func (p Profile) NothingKnown() bool { return p.Type == Unknown }
