package attachment

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

// Journal makes records durable.
type Journal interface {
	// Write makes a record durable before it returns nil. After an error either
	// the old or the new record may be found on disk.
	Write(record.Record) error
	// Remove deletes the record of a container ID durably; a record that is not
	// there is no error. After an error it may still be there.
	Remove(containerID string) error
	// Available returns why records cannot be written now, such as another file system
	// in the place of the state folder: then the plugin is not run either.
	Available() error
}

// Plugin runs the delegated plugin. Errors of Add, Del and Check are *call.Error.
// Each honours no cancellation but its own time limit: a call that has begun is
// never given up halfway.
type Plugin interface {
	// NewInvocation returns today's invocation for a new ADD in a pool, or why there
	// is none (no configuration yet, plugin not found, VERSION failed). The
	// container ID is made by id from the network's name; its error is passed on.
	NewInvocation(ctx context.Context, pool, owner string, id func(network string) (string, error)) (call.Invocation, error)
	Add(ctx context.Context, c call.Call) (call.Result, error)
	Del(ctx context.Context, c call.Call) error
	Check(ctx context.Context, c call.Call) error
	// Holds reports whether the plugin's store, read without running a verb, holds each
	// address for the container ID and interface of a context. An error means unknown.
	Holds(c call.Invocation, addrs []netip.Addr) (bool, error)
	// Lookup returns everything that the plugin's store holds for the container ID and
	// interface of a context. Without an error no address means that it holds nothing.
	// With one nothing is proven; addresses that are returned with it can be asked for.
	Lookup(ctx context.Context, c call.Invocation) (call.Result, error)
	// Prestart tells which calls come next, in their order, until forget is called. The
	// plugin may make ready for them, and does nothing for any before it comes. Some may
	// never come, and others may come between.
	Prestart(calls ...call.Upcoming) (forget func())
}

// AllocateRequest asks for the addresses of an owner.
type AllocateRequest struct {
	// Owner is the API's owner; empty for an attachment under a generated one.
	Owner string
	// Pool is the API's pool; empty for "default".
	Pool string
	// Family is the family to hand out; empty for every one that is enabled.
	Family record.Family
	// Expire asks for a hand-out that must be confirmed (header expiration).
	Expire bool
}

// RestoreRequest asks for one particular address.
type RestoreRequest struct {
	IP    netip.Addr
	Owner string
	Pool  string
}

// ReleaseRequest gives one address back.
type ReleaseRequest struct {
	IP   netip.Addr
	Pool string
	// SkipDelay gives it back at once, without ReleaseDelay, also when it cools already.
	SkipDelay bool
}

// Attachment is what is known of one attachment. Its record is shared, not to be changed.
type Attachment struct {
	record.Record
	// Verified is when the plugin last confirmed it in this life of the process; zero if it did not.
	Verified time.Time
	// LastUsed is when a request last asked for it in this life; zero if none did.
	LastUsed time.Time
	// Lost tells that the plugin says it does not hold the addresses any more.
	Lost bool
	// LastError is the last failure of work on it, empty after a success.
	LastError string
}

// Kind is a class of failure; package restapi maps it to a status code.
type Kind string

const (
	// Forbidden: --owners does not admit the owner.
	Forbidden Kind = "forbidden"
	// FamilyDisabled: the address family is off.
	FamilyDisabled Kind = "family disabled"
	// UnknownPool: no pool of that name.
	UnknownPool Kind = "unknown pool"
	// NotFound: no attachment has the address.
	NotFound Kind = "not found"
	// Exists: another owner holds the address.
	Exists Kind = "exists"
	// Failed: the plugin, the journal or the configuration stands in the way.
	Failed Kind = "failed"
	// Busy: the queue is full, the request's budget is spent, or its client did not
	// wait for the answer; try again after RetryAfter.
	Busy Kind = "busy"
	// Stopping: the process is about to end.
	Stopping Kind = "stopping"
)

// Error is a request that was not fulfilled. Its text names owner, pool,
// container ID and the plugin's own words as far as they are known.
type Error struct {
	Kind Kind
	// RetryAfter is when to try again; zero if there is nothing to say.
	RetryAfter time.Duration
	Err        error
}

// Error returns the reason as a person reads it.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

func fail(k Kind, format string, args ...any) *Error {
	return &Error{Kind: k, Err: fmt.Errorf(format, args...)}
}
