package engine

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// Journal makes records durable. Its file system may not be available.
type Journal interface {
	attachment.Journal
	// Available returns why records cannot be written now, for example because another file
	// system is mounted over the state directory; the plugin is not called then.
	Available() error
}

// Plugin runs the delegated plugin. Errors of Add, Del and Check are *call.Error. A call that
// has begun ignores cancellation and ends within its own time limit: an abandoned call would
// leave an unknown outcome.
type Plugin interface {
	// Network returns the network behind a pool as it is configured now, or why there is none.
	Network(pool string) (call.Network, error)
	// NewInvocation returns the invocation of a new ADD for an owner, or why there is none
	// (plugin not found, VERSION failed, unsafe plugin not accepted).
	NewInvocation(ctx context.Context, n call.Network, containerID, owner string) (call.Invocation, error)
	// ContainerInvocation returns the invocation of a call for a container interface, as NewInvocation.
	// CheckConfig returns why the plugin refuses the configuration, and so ADD and DEL; nil if that is
	// unknown. WithContainer returns an invocation with what the runtime passes now.
	ContainerInvocation(ctx context.Context, n call.Network, c call.Container) (call.Invocation, error)
	CheckConfig(ctx context.Context, n call.Network, inv call.Invocation) error
	WithContainer(inv call.Invocation, c call.Container) (call.Invocation, error)
	// GC runs GC, which the invocation must have, with the attachments that are valid.
	GC(ctx context.Context, inv call.Invocation, valid []call.Attachment) error
	// Configured returns why a pool has had no network since the process started; nil if it had one.
	Configured(pool string) error
	// Range compares addresses with the ranges of the network behind a pool as it is configured now.
	Range(pool string, addrs []netip.Addr) call.Range
	Add(ctx context.Context, c call.Call) (call.Result, error)
	Del(ctx context.Context, c call.Call) error
	Check(ctx context.Context, c call.Call) error
	// Holds reports whether the plugin's store, read without running a verb, has each address
	// for the container ID and interface of an invocation. An error means unknown.
	Holds(inv call.Invocation, addrs []netip.Addr) (bool, error)
	// Lookup returns everything that the plugin's store has for the container ID and interface
	// of an invocation. Without an error, no address proves that it has nothing. With an error
	// nothing is proven; addresses returned with it can be requested.
	Lookup(ctx context.Context, inv call.Invocation) (call.Result, error)
}

// AllocateRequest requests the addresses of an owner.
type AllocateRequest struct {
	// Owner is the API's owner; empty for a generated one.
	Owner string
	// Pool is the API's pool; empty for the default pool.
	Pool string
	// Family is the address family to allocate; empty for all enabled ones.
	Family attachment.Family
	// Expire requests an allocation that must be confirmed (header expiration).
	Expire bool
	// User sent the request.
	User User
}

// RestoreRequest requests one particular address. Owner, Pool and User are as in AllocateRequest.
type RestoreRequest struct {
	IP netip.Addr
	// Also is the address of the other family that the owner had, if it is known: it is requested
	// together with IP if the owner holds nothing. It is not claimed, and the request does not fail
	// without it.
	Also  netip.Addr
	Owner string
	Pool  string
	User  User
}

// ReleaseRequest releases one address. Pool and User are as in AllocateRequest.
type ReleaseRequest struct {
	IP   netip.Addr
	Pool string
	// Owner is the only one whose address is released; empty for any.
	Owner string
	// SkipDelay releases it without ReleaseDelay, also if it is in cooldown already.
	SkipDelay bool
	// User sent the request; an ordinary one may not release container interfaces.
	User User
}

// Attachment is the current view of one attachment. Its record is shared and must not be
// modified.
type Attachment struct {
	attachment.Record
	// Verified is when the plugin last confirmed it; zero if not since the start.
	Verified time.Time
	// LastUsed is when the last request of a client for it began or ended; zero if not since the start.
	LastUsed time.Time
	// Lost reports that the plugin does not hold the addresses any more.
	Lost bool
	// Range compares its addresses with the ranges of the present configuration; only All sets it.
	Range call.Range
	// LastError is the error of the last work on it, without owner and pool; empty after a success.
	LastError string
}

// retryAfter is the suggested wait before a retry where no better figure is known.
const retryAfter = 5 * time.Second

func familyDisabledError(what string, f attachment.Family) error {
	return attachment.NewError(attachment.FamilyDisabled, "%s: family %s is disabled (--enable-%s)", what, f, f)
}

func stoppingError(k attachment.Key) error {
	return &attachment.Error{Kind: attachment.Stopping, RetryAfter: retryAfter, Err: fmt.Errorf("%s: the service is stopping; try again", k)}
}
