package profile

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"
)

// FirstPluginCode is the lowest error code of a plugin's own (CNI spec section 5, "Error"). Lower
// codes are CNI's, and never mean that an attachment is lost.
const FirstPluginCode = 100

// maxSeconds is a day. A higher value is a mistake of the unit.
const maxSeconds = 24 * 60 * 60

// CheckType returns an error if a text cannot be a plugin type: the file name of the plugin's
// executable (CNI spec section 1, "type"), which must not lead out of the plugin directories. The error
// says what was expected.
func CheckType(pluginType string) error {
	switch {
	case pluginType == "":
		return errors.New("expected a plugin type such as host-local")
	case strings.ContainsFunc(pluginType, func(r rune) bool { return r == '/' || r == '\\' || r < ' ' }):
		return errors.New("expected a plain file name, without a path")
	case pluginType == "." || pluginType == "..":
		return errors.New("expected the file name of a plugin")
	}
	return nil
}

// validate returns the first error, in the order of the fields, and the field.
func (p Profile) validate() (field string, err error) {
	if err := CheckType(p.Type); err != nil {
		return "type", fmt.Errorf("type is %q; %w", p.Type, err)
	}
	c := &checker{}
	oneOf(c, "repeatedAdd", p.RepeatedAdd, RepeatedAddRefused, RepeatedAddSameAnswer, RepeatedAddAnotherAddress)
	oneOf(c, "verifyBy", p.VerifyBy, VerifyCheck, VerifyAdd, VerifyNothing)
	oneOf(c, "checkProves", p.CheckProves, ProvesAddress, ProvesPresence, ProvesNothing)
	oneOf(c, "keyedBy", p.KeyedBy, KeyedByUnknown, KeyedByAttachment, KeyedByContainer, KeyedByPod, KeyedByNothing)
	oneOf(c, "dependsOnPod", p.Depends, DependsUnknown, DependsOnNothing, DependsOnIdentity, DependsOnNamespace)
	c.refuse(p.Depends == DependsOnNothing && !p.Unique, "dependsOnPod is %q although unique is false; expected it to be left out: there are no addresses to acquire ahead", p.Depends)
	// A verb whose success proves nothing, or an ADD that would allocate at each verification.
	c.refuse(p.VerifyBy == VerifyCheck && p.CheckProves == ProvesNothing,
		"verifyBy is %q although checkProves is %q; expected %q or %q", p.VerifyBy, p.CheckProves, VerifyAdd, VerifyNothing)
	c.refuse(p.VerifyBy == VerifyAdd && p.RepeatedAdd != RepeatedAddSameAnswer,
		"verifyBy is %q although repeatedAdd is %q; expected %q there, or to verify by something else", p.VerifyBy, p.RepeatedAdd, RepeatedAddSameAnswer)
	c.refuse(p.VerifyBy == VerifyAdd && p.SingleUseIDs(),
		"verifyBy is %q although del is %q, after which no container ID is used a second time; expected %q or %q", p.VerifyBy, p.Del, VerifyCheck, VerifyNothing)
	c.lost(p)
	c.refuse(p.DelNotHeld.Message == "" && len(p.DelNotHeld.Codes) > 0,
		"delNotHeld.message is empty; expected a part of the message of a DEL for an ID that the plugin does not hold, which \"profile try\" finds: with a code alone a failed DEL would count as a success")
	c.codes("delNotHeld", p.DelNotHeld)
	c.seconds("addOutlivesSeconds", p.AddOutlivesSeconds)
	oneOf(c, "del", p.Del, DelReleased, DelQueued)
	oneOf(c, "store", p.Store, StoreNode, StoreRemote)
	oneOf(c, "lookup", p.Lookup, LookupNone, LookupHostLocal)
	c.refuse(p.Lookup == LookupHostLocal && (p.StateDirKey == "" || p.Store != StoreNode),
		"lookup is %q although store is %q and stateDirKey is %q; expected %q and the key of ipam that names the directory", p.Lookup, p.Store, p.StateDirKey, StoreNode)
	c.refuse(p.DelFromAnyNode && (p.Store != StoreRemote || p.SingleUseIDs()),
		"delFromAnyNode is true although store is %q and del is %q; expected %q, and a DEL that is not %q", p.Store, p.Del, StoreRemote, DelQueued)
	c.requests(p)
	oneOf(c, "podIdentity", p.PodIdentity, PodIdentityNone, PodIdentitySynthetic, PodIdentityGiven)
	oneOf(c, "namespace", p.Namespace, NamespaceAny, NamespaceLink)
	c.refuse(p.ReleaseFromAddress && p.Namespace != NamespaceLink,
		"releaseFromAddress is true although namespace is %q; expected %q", p.Namespace, NamespaceLink)
	c.refuse((p.StateDirKey == "") != (p.DefaultStateDir == ""), "stateDirKey is %q and defaultStateDir is %q; expected both, or neither", p.StateDirKey, p.DefaultStateDir)
	c.refuse(p.DefaultStateDir != "" && !path.IsAbs(p.DefaultStateDir), "defaultStateDir is %q; expected an absolute path", p.DefaultStateDir)
	oneOf(c, "networkName", p.NetworkName, "", NetworkNameAny, NetworkNameLabel)
	oneOf(c, "statusProves", p.StatusProves, "", StatusReadiness, StatusNothing)
	c.seconds("delGivesUpSeconds", p.DelGivesUpSeconds)
	for i, r := range p.Requires {
		field := fmt.Sprintf("requires[%d]", i)
		oneOf(c, field+".kind", r.Kind, RequireFile, RequireDirectory, RequireSocket)
		relative := func(file string) bool { return !path.IsAbs(file) }
		c.refuse(len(r.Paths) == 0 || slices.ContainsFunc(r.Paths, relative), "%s.paths is %q; expected absolute paths", field, r.Paths)
		c.refuse(r.Why == "", "%s.why is empty; expected what fails without it", field)
	}
	c.refuse(slices.Contains(p.Dangers, ""), "dangers has an empty text; expected how the plugin loses or duplicates addresses")
	if c.err == nil {
		return "", nil
	}
	end := strings.IndexFunc(c.err.Error(), func(r rune) bool { return !unicode.IsLetter(r) })
	return c.err.Error()[:end], c.err // each begins with its field
}

// checker has the first error of a profile.
type checker struct{ err error }

func (c *checker) refuse(wrong bool, format string, args ...any) {
	if wrong && c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
}

func oneOf[T ~string](c *checker, field string, got T, want ...T) {
	c.refuse(!slices.Contains(want, got), "%s is %q; expected one of %q", field, got, want)
}

func (c *checker) seconds(field string, n int) {
	c.refuse(n < 0 || n > maxSeconds, "%s is %d; expected 0 to %d seconds", field, n, maxSeconds)
}

// lost requires the error "not held" of CHECK exactly where attachments are verified by CHECK.
func (c *checker) lost(p Profile) {
	c.refuse(p.VerifyBy == VerifyCheck && p.Lost.Message == "",
		"lost.message is empty although verifyBy is %q; expected a part of the message of a CHECK for an attachment that the plugin does not hold, which \"profile try\" finds: most plugins have one code for every error, such as an unreachable server. Without such a message, verifyBy must be %q", p.VerifyBy, VerifyNothing)
	c.refuse(p.VerifyBy != VerifyCheck && (len(p.Lost.Codes) > 0 || p.Lost.Message != ""),
		"lost describes an answer of CHECK, which is not called because verifyBy is %q; expected {}", p.VerifyBy)
	c.codes("lost", p.Lost)
}

func (c *checker) codes(field string, l Lost) {
	for _, code := range l.Codes {
		c.refuse(code < FirstPluginCode, "%s.codes has %d; expected %d or more, those below are CNI's own", field, code, FirstPluginCode)
	}
}

func (c *checker) requests(p Profile) {
	for i, r := range p.Requests {
		oneOf(c, "requests", r, RequestRuntimeConfig, RequestArgsCNI, RequestCNIArgs)
		c.refuse(slices.Contains(p.Requests[:i], r), "requests has %q twice", r)
	}
	if len(p.Requests) > 0 {
		oneOf(c, "requestForm", p.RequestForm, FormAddress, FormCIDR)
	}
	c.refuse(len(p.Requests) == 0 && p.RequestForm != "", "requestForm is %q although there are no requests; expected it to be left out", p.RequestForm)
}

// errorf returns an error that names the profile, if its type is known.
func (p Profile) errorf(format string, args ...any) error {
	name := "plugin profile"
	if p.Type != "" {
		name += fmt.Sprintf(" %q", p.Type)
	}
	return fmt.Errorf("%s: %w", name, fmt.Errorf(format, args...))
}
