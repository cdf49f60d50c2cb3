// Package httpapi implements Cilium's IPAM API (swagger.yaml): it maps requests to calls of the
// engine, and results and errors of the engine to Cilium's responses. Decisions about addresses
// are the engine's.
package httpapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/go-openapi/loads"
	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/engine"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
	"github.com/delegated-ipam/delegated-ipam/server"
	"github.com/delegated-ipam/delegated-ipam/server/operations"
)

// Engine allocates addresses. Its methods return the attachment, as far as it is known, also
// with an error. Errors with a separate status code are *attachment.Error.
type Engine interface {
	Allocate(context.Context, engine.AllocateRequest) (engine.Attachment, error)
	Restore(context.Context, engine.RestoreRequest) (engine.Attachment, error)
	Release(context.Context, engine.ReleaseRequest) (engine.Attachment, error)
	// Discard releases the attachment of an owner, or forgets it, and returns what the plugin may keep.
	Discard(ctx context.Context, pool, owner string) (engine.Attachment, []engine.Leftover, error)
	// All yields every attachment, sorted by pool and owner.
	All() iter.Seq[engine.Attachment]
	// Abandon releases the attachment of a generated owner whose client did not get the response.
	Abandon(ctx context.Context, pool, owner string)
	// Record returns the record of an owner in a pool, if there is one, without waiting for a lock.
	Record(pool, owner string) (record.Record, bool)
}

// Reporter reports the state of the process.
type Reporter interface {
	// Report returns the state of the process. It returns soon even if a plugin or a disk
	// hangs.
	Report(context.Context) Report
}

// Options are the dependencies of the API.
type Options struct {
	Engine   Engine
	Reporter Reporter
	// Addressing is the configured addressing of the node.
	Addressing Addressing
	// DefaultPool is the name of the pool of a request without one; empty for "default".
	DefaultPool string
	// OnUnread calls f, once, if the client of a request closes the connection before it has
	// read the response that was sent; nil if that cannot be found out.
	OnUnread func(ctx context.Context, f func())
	// Privileged reports whether the caller of a request may discard attachments; nil for no caller.
	Privileged func(context.Context) bool
	// Log gets one line per request.
	Log logrus.FieldLogger
}

// New returns the API. It returns an error if an option is missing or if the embedded
// swagger.yaml cannot be read.
func New(o Options) (*API, error) {
	if o.Engine == nil || o.Reporter == nil || o.Log == nil {
		return nil, errors.New("restapi: options Engine, Reporter and Log are required")
	}
	spec, err := loads.Analyzed(server.SwaggerJSON, "")
	if err != nil {
		return nil, fmt.Errorf("restapi: read the embedded swagger.yaml: %w", err)
	}
	h := &handlers{
		engine: o.Engine, privileged: o.Privileged, reporter: o.Reporter, node: o.Addressing, defaultPool: cmp.Or(o.DefaultPool, client.DefaultPool),
		allocateErrors: allocateErrors(), restoreErrors: restoreErrors(), releaseErrors: releaseErrors(), discardErrors: discardErrors(),
	}
	api := operations.NewDelegatedIpamAPI(spec)
	h.register(api)
	if err := api.Validate(); err != nil {
		return nil, fmt.Errorf("restapi: %w", err)
	}
	api.Init()
	return &API{
		// RoutesHandler serves the operations only. The generated documentation pages load
		// scripts from other hosts, which a socket of the node must not offer.
		server:   api.Context().RoutesHandler(nil),
		reporter: o.Reporter,
		log:      o.Log.WithFields(nil), onUnread: o.OnUnread,
		routes: api.Context(), codes: documentedCodes(spec.Analyzer, spec.BasePath()),
	}, nil
}
