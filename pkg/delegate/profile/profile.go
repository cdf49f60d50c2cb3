// Package profile is what is known of a plugin type: what its verbs really
// mean (DESIGN.md section 2). Profiles are data, one embedded file a type; a
// type without a file gets the conservative "unknown".
package profile

import (
	"slices"
	"strings"
	"time"
)

// RepeatedAdd is what a second ADD with the same container ID does.
type RepeatedAdd string

// The answers that plugins give to a repeated ADD (PLUGINS.md, first row).
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
)

// Lost describes the one answer of CHECK that means "not held". Everything
// else is "could not ask" (DESIGN.md section 5, Allocate step 1).
type Lost struct {
	// Codes are the CNI error codes of such an answer; empty for any code from MinCode on.
	Codes []uint `json:"codes,omitempty"`
	// MinCode is the lowest code of such an answer; codes below 100 are CNI's own.
	MinCode uint `json:"minCode,omitempty"`
	// Message must occur in the error's message or details; empty for any.
	Message string `json:"message,omitempty"`
}

// Profile is what is known of one plugin type.
type Profile struct {
	// Type is the plugin type, such as "host-local"; "unknown" for the conservative one.
	Type        string      `json:"type"`
	RepeatedAdd RepeatedAdd `json:"repeatedAdd"`
	VerifyBy    Verify      `json:"verifyBy"`
	CheckProves CheckProves `json:"checkProves"`
	Lost        Lost        `json:"lost"`
	// AddOutlivesSeconds is how long an ADD may still allocate after its process was
	// ended or lost (a daemon behind it goes on); a DEL before that proves nothing.
	AddOutlivesSeconds int `json:"addOutlivesSeconds"`
	// LateDel: a DEL that succeeded may be carried out later, so an ID is not used again after it.
	LateDel bool `json:"lateDel"`
	// Requests are the honoured conventions for a requested address, best first; empty for none.
	Requests    []Request   `json:"requests,omitempty"`
	PodIdentity PodIdentity `json:"podIdentity"`
	// Sources say where the facts come from.
	Sources []string `json:"sources,omitempty"`
}

// AddOutlives is AddOutlivesSeconds as a duration.
func (p Profile) AddOutlives() time.Duration {
	return time.Duration(p.AddOutlivesSeconds) * time.Second
}

// HonoursRequest tells whether an ADD can ask for an address.
func (p Profile) HonoursRequest() bool { return len(p.Requests) > 0 }

// SaysLost tells whether a well-formed error of CHECK means that the plugin
// does not hold the attachment. Inputs are the plugin's code, message and details.
func (p Profile) SaysLost(code uint, msg, details string) bool {
	if len(p.Lost.Codes) > 0 && !slices.Contains(p.Lost.Codes, code) {
		return false
	}
	if code < p.Lost.MinCode || code == 0 {
		return false
	}
	return strings.Contains(msg, p.Lost.Message) || strings.Contains(details, p.Lost.Message)
}
