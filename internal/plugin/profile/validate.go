package profile

import (
	"fmt"
	"path"
	"slices"
)

// FirstPluginCode is the lowest error code of a plugin's own (CNI spec section 5, "Error"). Lower
// codes are CNI's, and never mean that an attachment is lost.
const FirstPluginCode = 100

// maxOutlives is a day, in seconds. A higher value is a mistake of the unit.
const maxOutlives = 24 * 60 * 60

// validate returns the first error, in the order of the fields.
func (p Profile) validate() error {
	if err := CheckType(p.Type); err != nil {
		return p.errorf("type is %q; %w", p.Type, err)
	}
	for _, err := range []error{
		oneOf(p, "repeatedAdd", p.RepeatedAdd, RepeatedAddRefused, RepeatedAddSameAnswer, RepeatedAddAnotherAddress),
		oneOf(p, "verifyBy", p.VerifyBy, VerifyCheck, VerifyAdd, VerifyNothing),
		oneOf(p, "checkProves", p.CheckProves, ProvesAddress, ProvesPresence, ProvesNothing),
		p.validateVerify(),
		p.validateLost(),
		p.between("addOutlivesSeconds", p.AddOutlivesSeconds, maxOutlives),
		oneOf(p, "del", p.Del, DelReleased, DelQueued),
		oneOf(p, "store", p.Store, StoreNode, StoreRemote),
		oneOf(p, "lookup", p.Lookup, LookupNone, LookupHostLocal),
		p.validateLookup(),
		p.validateDelFromAnyNode(),
		p.validateRequests(),
		oneOf(p, "podIdentity", p.PodIdentity, PodIdentityNone, PodIdentitySynthetic, PodIdentityGiven),
		oneOf(p, "namespace", p.Namespace, NamespaceAny, NamespaceLink),
		p.validateStateDir(),
		oneOf(p, "networkName", p.NetworkName, "", NetworkNameAny, NetworkNameLabel),
		oneOf(p, "statusProves", p.StatusProves, "", StatusReadiness, StatusNothing),
		p.between("delGivesUpSeconds", p.DelGivesUpSeconds, maxOutlives),
		p.validateRequires(),
		p.validateDangers(),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

// validateVerify refuses a verb whose success proves nothing, and an ADD that would allocate at each
// verification.
func (p Profile) validateVerify() error {
	if p.VerifyBy == VerifyCheck && p.CheckProves == ProvesNothing {
		return p.errorf("verifyBy is %q although checkProves is %q; expected %q or %q", p.VerifyBy, p.CheckProves, VerifyAdd, VerifyNothing)
	}
	if p.VerifyBy == VerifyAdd && p.RepeatedAdd != RepeatedAddSameAnswer {
		return p.errorf("verifyBy is %q although repeatedAdd is %q; expected %q there, or to verify by something else", p.VerifyBy, p.RepeatedAdd, RepeatedAddSameAnswer)
	}
	if p.VerifyBy == VerifyAdd && p.SingleUseIDs() {
		return p.errorf("verifyBy is %q although del is %q, after which no container ID is used a second time; expected %q or %q", p.VerifyBy, p.Del, VerifyCheck, VerifyNothing)
	}
	return nil
}

// validateLost requires the answer "not held" of CHECK exactly where attachments are verified by CHECK.
func (p Profile) validateLost() error {
	l := p.Lost
	switch {
	case p.VerifyBy == VerifyCheck && l.Message == "":
		return p.errorf("lost.message is empty although verifyBy is %q; expected a part of the message of a CHECK for an attachment that the plugin does not hold, which \"profile try\" finds: most plugins have one code for every error, such as an unreachable server. Without such a message, verifyBy must be %q", p.VerifyBy, VerifyNothing)
	case p.VerifyBy != VerifyCheck && !l.empty():
		return p.errorf("lost describes an answer of CHECK, which is not called because verifyBy is %q; expected {}", p.VerifyBy)
	}
	for _, code := range l.Codes {
		if code < FirstPluginCode {
			return p.errorf("lost.codes has %d; expected %d or more, those below are CNI's own", code, FirstPluginCode)
		}
	}
	return nil
}

// validateDelFromAnyNode refuses a fact that contradicts the store or the container IDs.
func (p Profile) validateDelFromAnyNode() error {
	if p.DelFromAnyNode && (p.Store != StoreRemote || p.SingleUseIDs()) {
		return p.errorf("delFromAnyNode is true although store is %q and del is %q; expected %q, and a DEL that is not %q", p.Store, p.Del, StoreRemote, DelQueued)
	}
	return nil
}

func (p Profile) validateDangers() error {
	if slices.Contains(p.Dangers, "") {
		return p.errorf("dangers has an empty text; expected how the plugin loses or duplicates addresses")
	}
	return nil
}

func (p Profile) validateRequires() error {
	for i, r := range p.Requires {
		field := fmt.Sprintf("requires[%d]", i)
		if err := oneOf(p, field+".kind", r.Kind, RequireFile, RequireDirectory); err != nil {
			return err
		}
		relative := func(file string) bool { return !path.IsAbs(file) }
		if len(r.Paths) == 0 || slices.ContainsFunc(r.Paths, relative) {
			return p.errorf("%s.paths is %q; expected absolute paths", field, r.Paths)
		}
		if r.Why == "" {
			return p.errorf("%s.why is empty; expected what fails without it", field)
		}
	}
	return nil
}

// validateLookup requires the directory that a lookup reads.
func (p Profile) validateLookup() error {
	if p.Lookup == LookupHostLocal && (p.StateDirKey == "" || p.Store != StoreNode) {
		return p.errorf("lookup is %q although store is %q and stateDirKey is %q; expected %q and the key of ipam that names the directory", p.Lookup, p.Store, p.StateDirKey, StoreNode)
	}
	return nil
}

func (p Profile) validateRequests() error {
	for i, r := range p.Requests {
		if err := oneOf(p, "requests", r, RequestRuntimeConfig, RequestArgsCNI, RequestCNIArgs); err != nil {
			return err
		}
		if slices.Contains(p.Requests[:i], r) {
			return p.errorf("requests has %q twice", r)
		}
	}
	switch {
	case len(p.Requests) == 0 && p.RequestForm != "":
		return p.errorf("requestForm is %q although there are no requests; expected it to be left out", p.RequestForm)
	case len(p.Requests) == 0:
		return nil
	}
	return oneOf(p, "requestForm", p.RequestForm, FormAddress, FormCIDR)
}

func (p Profile) validateStateDir() error {
	if (p.StateDirKey == "") != (p.DefaultStateDir == "") {
		return p.errorf("stateDirKey is %q and defaultStateDir is %q; expected both, or neither", p.StateDirKey, p.DefaultStateDir)
	}
	if p.DefaultStateDir != "" && !path.IsAbs(p.DefaultStateDir) {
		return p.errorf("defaultStateDir is %q; expected an absolute path", p.DefaultStateDir)
	}
	return nil
}

// between checks that a number of seconds is from 0 to limit.
func (p Profile) between(field string, n, limit int) error {
	if n < 0 || n > limit {
		return p.errorf("%s is %d; expected 0 to %d seconds", field, n, limit)
	}
	return nil
}

// oneOf checks that a value is one of want.
func oneOf[T ~string](p Profile, field string, got T, want ...T) error {
	if slices.Contains(want, got) {
		return nil
	}
	return p.errorf("%s is %q; expected one of %q", field, got, want)
}

// errorf returns an error that names the profile, if its type is known.
func (p Profile) errorf(format string, args ...any) error {
	if p.Type == "" {
		return fmt.Errorf("plugin profile: %w", fmt.Errorf(format, args...))
	}
	return fmt.Errorf("plugin profile %q: %w", p.Type, fmt.Errorf(format, args...))
}
