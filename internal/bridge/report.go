package bridge

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/planner"
	"github.com/delegated-ipam/delegated-ipam/internal/nodeevents"
)

// Reasons of problems besides those that the planner reports (docs/operate/bridge.md, Events).
const (
	reasonPoolExhausted      = "PoolExhausted"
	reasonPluginFailed       = "PluginFailed"
	reasonRequestRefused     = "RequestRefused"
	reasonDaemonBusy         = "DaemonBusy"
	reasonAgentNotResponding = "AgentNotResponding"
	reasonMalformedEntry     = "MalformedPoolEntry"
	reasonWrongMode          = "WrongIPAMMode"
	reasonNodeMissing        = "CiliumNodeMissing"
	reasonNotPermitted       = "NotPermitted"
	reasonAPIUnavailable     = "APIServerUnavailable"
	reasonDaemonUnavailable  = "DaemonUnavailable"
	reasonNodeMismatch       = "DaemonNodeMismatch"
	reasonOwnerNotAdmitted   = "OwnerNotAdmitted"
	reasonNoProgress         = "NoProgress"
)

// failure is the error of a failed reconciliation or request, with the reason of its problem.
type failure struct {
	reason string
	err    error
	// refused reports whether the daemon has not executed a request, which affects one slot only. after
	// is the delay that its response names (Retry-After); 0 for none.
	refused bool
	after   time.Duration
}

func fail(reason string, err error) *failure { return &failure{reason: reason, err: err} }

func (f *failure) Error() string { return f.reason + ": " + f.err.Error() }

func (f *failure) Unwrap() error { return f.err }

// terminal reports whether only a change of the CiliumNode can end the failure, so that a retry is
// useless.
func (f *failure) terminal() bool {
	return f.reason == reasonWrongMode || f.reason == reasonNodeMissing
}

// ofDaemon reports whether the daemon is the cause. The API server was available then.
func (f *failure) ofDaemon() bool {
	return slices.Contains([]string{reasonDaemonUnavailable, reasonNodeMismatch, reasonOwnerNotAdmitted, reasonNoProgress}, f.reason)
}

// apiError adds the reason to an error of the API server. A conflict is returned unchanged.
func apiError(err error) error {
	switch {
	case err == nil || apierrors.IsConflict(err):
		return err
	case apierrors.IsNotFound(err):
		return fail(reasonNodeMissing, err)
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return fail(reasonNotPermitted, err)
	default:
		return fail(reasonAPIUnavailable, err)
	}
}

func (s snapshot) problems(st *state) map[string]nodeevents.Problem {
	subjects := map[string][]string{}
	if len(s.malformed) > 0 {
		subjects[reasonMalformedEntry] = s.malformed
	}
	for _, r := range s.plan.Reports {
		subjects[r.Reason] = append(subjects[r.Reason], r.IP.String())
	}
	for _, a := range s.plan.Restore {
		// Another attempt does not end the problem; its success does.
		if ip := a.IPs[0]; s.observed.InUse(ip) && st.refusals[planner.Restore].of[ip] != nil {
			subjects[planner.AddressNotHeld] = append(subjects[planner.AddressNotHeld], ip.String())
		}
	}
	current := map[string]nodeevents.Problem{}
	for reason, about := range subjects {
		slices.Sort(about)
		about = slices.Compact(about)
		current[reason] = nodeevents.Problem{Subject: strings.Join(about, ","), Message: describe(reason, about)}
	}
	if f := (*failure)(nil); errors.As(apiError(s.allocatableErr), &f) && f.reason != reasonNodeMissing { // that is of the CiliumNode
		current[f.reason] = nodeevents.Problem{Message: fmt.Sprintf("the node's number of pods cannot be read, so few addresses are allocated ahead: %v", f.err)}
	}
	if message := st.agentProblem(); message != "" {
		current[reasonAgentNotResponding] = nodeevents.Problem{Message: message}
	}
	for _, kind := range []planner.Kind{planner.Release, planner.Acquire} {
		of := st.refusals[kind].of
		for _, ip := range slices.SortedFunc(maps.Keys(of), netip.Addr.Compare) {
			current[of[ip].reason] = nodeevents.Problem{Message: of[ip].cause.Error()}
		}
	}
	return current
}

// maxNamed limits the addresses that one message names: an Event takes at most 1024 bytes.
const maxNamed = 8

func describe(reason string, subjects []string) string {
	count := len(subjects)
	names := strings.Join(subjects[:min(count, maxNamed)], ", ")
	if count > maxNamed {
		names += ", …"
	}
	switch reason {
	case planner.ForeignEntry:
		return fmt.Sprintf("spec.ipam.pool has %d entries that the bridge did not write and does not change: %s", count, names)
	case planner.AddressNotHeld:
		return fmt.Sprintf("%d used addresses are not held by the daemon and could not be restored: %s. Those in spec.ipam.pool stay there while they are used; "+
			"the others are not published, and the agent drops their endpoints when it restarts. "+
			"The plugin may allocate them to another client: recreate their pods", count, names)
	case planner.AddressOutsideRange:
		return fmt.Sprintf("%d used addresses are outside the ranges of this node's present CNI configuration: %s. Another node may have them: "+
			"recreate their pods, which get other addresses, and restart the agent with a new CiliumNode for its own (docs/install/ranges.md). They are not allocated again", count, names)
	default:
		return fmt.Sprintf("spec.ipam.pool has %d keys that are not addresses as cilium-agent spells them; the bridge does not change them: %s", count, names)
	}
}
