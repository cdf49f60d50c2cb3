// Package restapi answers Cilium's IPAM API (swagger.yaml): it turns requests into
// calls of the engine, and what the engine says into Cilium's answers. It decides
// nothing about addresses.
package restapi

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/go-openapi/loads"
	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/pkg/attachment"
	"github.com/delegated-ipam/delegated-ipam/server"
	"github.com/delegated-ipam/delegated-ipam/server/operations"
)

// Engine hands out addresses. What it returns beside an error names the
// attachment as far as it is known. Errors that are to be more than a plain failure
// are *attachment.Error.
type Engine interface {
	Allocate(context.Context, attachment.AllocateRequest) (attachment.Attachment, error)
	Restore(context.Context, attachment.RestoreRequest) (attachment.Attachment, error)
	Release(context.Context, attachment.ReleaseRequest) (attachment.Attachment, error)
	// All yields every attachment, sorted by pool and owner.
	All() iter.Seq[attachment.Attachment]
	// Abandon releases the attachment of a generated owner whose client did not get the
	// response.
	Abandon(pool, owner string)
	// Lookup returns an owner's attachment in a pool, if there is one.
	Lookup(pool, owner string) (attachment.Attachment, bool)
}

// Reporter knows how the process is.
type Reporter interface {
	Report(context.Context) Report
}

// Options is what the API needs.
type Options struct {
	Engine   Engine
	Reporter Reporter
	// Addressing is what the answers say of the node.
	Addressing Addressing
	// OnUnread calls f, once, if the client of a request has left before it has read the
	// response that was sent to it; nil where that cannot be found out.
	OnUnread func(ctx context.Context, f func())
	// Log gets one line per request.
	Log logrus.FieldLogger
}

// New returns the API. An error means that an option is missing, or that the
// embedded contract cannot be read.
func New(o Options) (*API, error) {
	if o.Engine == nil || o.Reporter == nil || o.Log == nil {
		return nil, errors.New("restapi: Engine, Reporter and Log must be given")
	}
	spec, err := loads.Analyzed(server.SwaggerJSON, "")
	if err != nil {
		return nil, fmt.Errorf("restapi: read the embedded swagger.yaml: %w", err)
	}
	h := &handlers{engine: o.Engine, reporter: o.Reporter, node: o.Addressing, refusals: newRefusals()}
	api := operations.NewDelegatedIpamAPI(spec)
	h.register(api)
	if err := api.Validate(); err != nil {
		return nil, fmt.Errorf("restapi: %w", err)
	}
	api.Init()
	// RoutesHandler serves the operations alone: generated documentation pages,
	// which load scripts from elsewhere, have no place on a node's socket.
	routes := api.Context().RoutesHandler(nil)
	handler := logged(o.Log, o.OnUnread, recovered(o.Log, wellFormedQuery(routes)))
	return newAPI(handler, api.Context(), spec.Analyzer, spec.BasePath()), nil
}
