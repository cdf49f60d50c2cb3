package attachment

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// Kind is a class of failure; package httpapi maps it to a status code.
type Kind string

// The kinds of failures.
const (
	Forbidden      Kind = "forbidden" // the owner is not among --owners
	FamilyDisabled Kind = "family disabled"
	UnknownPool    Kind = "unknown pool"
	NotFound       Kind = "not found" // no attachment has the address
	Exists         Kind = "exists"    // another owner has the address
	Failed         Kind = "failed"    // plugin, journal or configuration failed
	// Busy: the queue is full, the budget is spent, or the client left; retry after RetryAfter.
	Busy     Kind = "busy"
	Stopping Kind = "stopping"
)

// Error is a failed request. Its text names owner, pool, container ID and the plugin's own
// message if they are known.
type Error struct {
	Kind Kind
	// RetryAfter is the suggested wait before a retry; zero for none.
	RetryAfter time.Duration
	Err        error
}

func (e *Error) Error() string { return e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// IsRejection reports whether an error is the rejection of a request by a rule.
func IsRejection(err error) bool {
	_, ok := errors.AsType[*Error](err)
	return ok
}

// NewError returns an error without a suggested wait.
func NewError(k Kind, format string, args ...any) *Error {
	return &Error{Kind: k, Err: fmt.Errorf(format, args...)}
}

// NotFoundError rejects the release of an address that no attachment of the pool has.
func NotFoundError(pool string, ip netip.Addr) error {
	return NewError(NotFound, "address %s is not allocated in pool %q", ip, pool)
}

// GeneratedOwnerPrefix begins the owner of an attachment that was requested without one.
const GeneratedOwnerPrefix = "anonymous/"

// holdsOthersError rejects the restore of an address that is not among the held ones.
func (op *Operation) holdsOthersError(have []netip.Addr, ip netip.Addr) error {
	return NewError(Failed, "%s holds %v, not %s; release those first, or allocate to get the held ones", op, have, ip)
}

// excludedRequestError rejects the restore of an excluded address.
func (op *Operation) excludedRequestError(ip netip.Addr) error {
	return NewError(Failed, "%s: address %s is excluded (--exclude-addresses), so it is not allocated", op, ip)
}

// outsideError rejects the restore of an address outside the ranges.
func (op *Operation) outsideError(ip netip.Addr) error {
	return NewError(Failed, "%s: address %s is outside the ranges of the present CNI configuration, so it is not allocated", op, ip)
}

// isPluginRefusal reports whether the plugin works but refuses a request.
func isPluginRefusal(err error) bool {
	e, ok := errors.AsType[*call.Error](err)
	return ok && e.IsPluginRefusal()
}

// isRefused reports whether the plugin refused a call, or did not run.
func isRefused(err error) bool {
	e, ok := errors.AsType[*call.Error](err)
	return ok && e.Outcome != call.Unknown
}

// outcomeUnknown reports whether the plugin may still act on a failed call.
func outcomeUnknown(err error) bool {
	e, ok := errors.AsType[*call.Error](err)
	return ok && e.Outcome == call.Unknown
}
