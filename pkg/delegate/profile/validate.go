package profile

import (
	"fmt"
	"path"
	"slices"
)

const (
	// firstPluginCode is where a plugin's own error codes begin (CNI spec section
	// 5, "Error"); those below never mean that an attachment is lost.
	firstPluginCode = 100
	// maxAddOutlives is a day: whoever means more has mistaken the unit.
	maxAddOutlives = 24 * 60 * 60
)

// validate returns the first thing that is wrong, by the order of the fields.
func (p Profile) validate() error {
	if err := CheckType(p.Type); err != nil {
		return p.wrong("type is %q; %w", p.Type, err)
	}
	for _, err := range []error{
		oneOf(p, "repeatedAdd", p.RepeatedAdd, RepeatedAddRefused, RepeatedAddSameAnswer, RepeatedAddAnotherAddress),
		oneOf(p, "verifyBy", p.VerifyBy, VerifyCheck, VerifyAdd, VerifyNothing),
		oneOf(p, "checkProves", p.CheckProves, ProvesAddress, ProvesPresence, ProvesNothing),
		p.validateVerify(),
		p.validateLost(),
		p.between("addOutlivesSeconds", p.AddOutlivesSeconds, maxAddOutlives),
		p.between("delOutlivesSeconds", p.DelOutlivesSeconds, maxAddOutlives),
		oneOf(p, "del", p.Del, DelReleased, DelQueued, DelUnproved),
		oneOf(p, "store", p.Store, StoreNode, StoreRemote),
		oneOf(p, "lookup", p.Lookup, LookupNone, LookupHostLocal),
		p.validateLookup(),
		p.validateDel(),
		p.validateRequests(),
		oneOf(p, "podIdentity", p.PodIdentity, PodIdentityNone, PodIdentitySynthetic, PodIdentityGiven),
		oneOf(p, "namespace", p.Namespace, NamespaceAny, NamespaceEphemeral, NamespaceLink),
		p.validateStateDir(),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

// validateVerify refuses a question whose answer means nothing, and one that
// would allocate each time it is asked.
func (p Profile) validateVerify() error {
	if p.VerifyBy == VerifyCheck && p.CheckProves == ProvesNothing {
		return p.wrong("verifyBy is %q although checkProves is %q; expected %q or %q", p.VerifyBy, p.CheckProves, VerifyAdd, VerifyNothing)
	}
	if p.VerifyBy == VerifyAdd && p.RepeatedAdd != RepeatedAddSameAnswer {
		return p.wrong("verifyBy is %q although repeatedAdd is %q; expected %q there, or to verify by something else", p.VerifyBy, p.RepeatedAdd, RepeatedAddSameAnswer)
	}
	return nil
}

// validateLost wants the no of CHECK described exactly where CHECK is asked.
func (p Profile) validateLost() error {
	l := p.Lost
	switch {
	case p.VerifyBy == VerifyCheck && l.empty():
		return p.wrong("lost is empty although verifyBy is %q; expected the codes or the words by which a failed CHECK says that it holds nothing", p.VerifyBy)
	case p.VerifyBy != VerifyCheck && !l.empty():
		return p.wrong("lost describes an answer of CHECK, which is not asked because verifyBy is %q; expected {}", p.VerifyBy)
	case len(l.Codes) > 0 && l.MinCode > 0:
		return p.wrong("lost has both codes and minCode; expected one of them")
	case l.MinCode > 0 && l.MinCode < firstPluginCode:
		return p.wrong("lost.minCode is %d; expected %d or more, those below are CNI's own", l.MinCode, firstPluginCode)
	}
	for _, code := range l.Codes {
		if code < firstPluginCode {
			return p.wrong("lost.codes has %d; expected %d or more, those below are CNI's own", code, firstPluginCode)
		}
	}
	return nil
}

func (p Profile) validateDel() error {
	if p.Del == DelUnproved && p.Unsafe == "" {
		return p.wrong("del is %q, but unsafe is empty; expected why such a plugin loses addresses", p.Del)
	}
	return nil
}

// validateLookup wants to know which folder a lookup reads.
func (p Profile) validateLookup() error {
	if p.Lookup == LookupHostLocal && (p.StateDirKey == "" || p.Store != StoreNode) {
		return p.wrong("lookup is %q although store is %q and stateDirKey is %q; expected %q and the key of ipam that names the folder", p.Lookup, p.Store, p.StateDirKey, StoreNode)
	}
	return nil
}

func (p Profile) validateRequests() error {
	for i, r := range p.Requests {
		if err := oneOf(p, "requests", r, RequestRuntimeConfig, RequestArgsCNI, RequestCNIArgs); err != nil {
			return err
		}
		if slices.Contains(p.Requests[:i], r) {
			return p.wrong("requests has %q twice", r)
		}
	}
	if len(p.Requests) == 0 && p.RequestForm != "" {
		return p.wrong("requestForm is %q although there are no requests; expected it to be left out", p.RequestForm)
	}
	if len(p.Requests) == 0 {
		return nil
	}
	return oneOf(p, "requestForm", p.RequestForm, FormAddress, FormCIDR)
}

func (p Profile) validateStateDir() error {
	if (p.StateDirKey == "") != (p.DefaultStateDir == "") {
		return p.wrong("stateDirKey is %q and defaultStateDir is %q; expected both, or neither", p.StateDirKey, p.DefaultStateDir)
	}
	if p.DefaultStateDir != "" && !path.IsAbs(p.DefaultStateDir) {
		return p.wrong("defaultStateDir is %q; expected an absolute path", p.DefaultStateDir)
	}
	return nil
}

func (p Profile) between(field string, n, limit int) error {
	if n < 0 || n > limit {
		return p.wrong("%s is %d; expected 0 to %d seconds", field, n, limit)
	}
	return nil
}

func oneOf[T ~string](p Profile, field string, got T, want ...T) error {
	if slices.Contains(want, got) {
		return nil
	}
	return p.wrong("%s is %q; expected one of %q", field, got, want)
}

// wrong is an error that names the profile, as far as its type is known.
func (p Profile) wrong(format string, args ...any) error {
	if p.Type == "" {
		return fmt.Errorf("plugin profile: %w", fmt.Errorf(format, args...))
	}
	return fmt.Errorf("plugin profile %q: %w", p.Type, fmt.Errorf(format, args...))
}
