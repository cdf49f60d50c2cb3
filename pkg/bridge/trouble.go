package bridge

import (
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/delegated-ipam/delegated-ipam/pkg/bridge/planner"
)

// What the bridge tells of besides what converge reports; the reasons of its Events.
const (
	poolExhausted      planner.Reason = "PoolExhausted"
	wrongMode          planner.Reason = "WrongIPAMMode"
	nodeMissing        planner.Reason = "CiliumNodeMissing"
	notPermitted       planner.Reason = "NotPermitted"
	apiUnavailable     planner.Reason = "APIServerUnavailable"
	sidecarUnavailable planner.Reason = "SidecarUnavailable"
	anotherNode        planner.Reason = "SidecarOfAnotherNode"
	notAdmitted        planner.Reason = "OwnerNotAdmitted"
	noProgress         planner.Reason = "NoProgress"
	malformedEntry     planner.Reason = "MalformedPoolEntry"
)

// failures are the reasons of a trouble.
func failures() []string {
	var names []string
	for _, r := range []planner.Reason{wrongMode, nodeMissing, notPermitted, apiUnavailable, sidecarUnavailable, anotherNode, notAdmitted, noProgress} {
		names = append(names, string(r))
	}
	return names
}

// fails tells that a reason is one of a trouble.
func fails(r planner.Reason) bool { return slices.Contains(failures(), string(r)) }

var (
	// errExhausted: the plugin has no address to give.
	errExhausted = errors.New("no address could be acquired")
	// errRefused: the sidecar does not hold that address, and does not get it.
	errRefused = errors.New("the address could not be restored")
)

// trouble is why a look at things led to nothing, with the reason it is told under.
type trouble struct {
	reason planner.Reason
	err    error
}

// Error is the reason in words.
func (t *trouble) Error() string { return string(t.reason) + ": " + t.err.Error() }

// Unwrap is the cause.
func (t *trouble) Unwrap() error { return t.err }

// waits tells that only a change of the CiliumNode can end it, so that there is
// nothing to try again.
func (t *trouble) waits() bool { return t.reason == wrongMode || t.reason == nodeMissing }

// ofAPI is what an error of the API server means. A conflict stays as it is.
func ofAPI(err error) error {
	switch {
	case err == nil || apierrors.IsConflict(err):
		return err
	case apierrors.IsNotFound(err):
		return &trouble{nodeMissing, err}
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return &trouble{notPermitted, err}
	default:
		return &trouble{apiUnavailable, err}
	}
}
