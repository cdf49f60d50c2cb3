// Package httpapi implements Cilium's IPAM API (swagger.yaml): it authorizes callers, maps requests
// to calls of the engine, and results and errors of the engine to Cilium's responses. Decisions about
// addresses are the engine's.
package httpapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/netip"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"github.com/go-openapi/analysis"
	"github.com/go-openapi/loads"
	"github.com/go-openapi/runtime/middleware"
	"github.com/go-openapi/spec"
	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/engine"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/unixsock"
	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
	"github.com/delegated-ipam/delegated-ipam/server"
	"github.com/delegated-ipam/delegated-ipam/server/operations"
)

// Engine allocates addresses. Its methods return the attachment also
// with an error, if it is known. Errors with a separate status code are *attachment.Error.
type Engine interface {
	Allocate(context.Context, engine.AllocateRequest) (engine.Attachment, error)
	Restore(context.Context, engine.RestoreRequest) (engine.Attachment, error)
	Release(context.Context, engine.ReleaseRequest) (engine.Attachment, error)
	// AddContainer, DelContainer and CheckContainer are the requests of a container runtime in a network.
	AddContainer(ctx context.Context, network string, c call.Container) (engine.Attachment, error)
	DelContainer(ctx context.Context, network string, c call.Container) (engine.Attachment, error)
	CheckContainer(ctx context.Context, network string, c call.Container) (engine.Attachment, error)
	// GC releases the attachments of container interfaces that are not valid.
	GC(ctx context.Context, network string, valid []call.Attachment) error
	// All yields every attachment, sorted by pool and owner.
	All() iter.Seq[engine.Attachment]
	// Record returns the record of an owner in a pool, if there is one, without waiting for a lock.
	Record(pool, owner string) (attachment.Record, bool)
}

// Reporter reports the state of the process.
type Reporter interface {
	// Report returns a new report of the process, without its attachments; with a network that for the pods of it. It
	// returns soon even if a plugin or a disk hangs.
	Report(ctx context.Context, network string) *models.DelegatedIPAMStatus
}

// Options are the dependencies of the API.
type Options struct {
	Engine   Engine
	Reporter Reporter
	// Addressing is the configured addressing of the node.
	Addressing Addressing
	// DefaultPool is the name of the pool of a request without one; empty for "default".
	DefaultPool string
	// BeforeAdd is called before an ADD of a container interface, and its error refuses the ADD; nil for
	// nothing to do.
	BeforeAdd func(ctx context.Context, network string, c call.Container) error
	// ReleaseLease releases a lease under one of the daemon's container IDs that no attachment has. Errors are as of Engine.
	ReleaseLease func(ctx context.Context, pool string, ip netip.Addr, containerID string) error
	// Sandboxes gets the list of all sandboxes of a container runtime, and its error refuses the list.
	Sandboxes func(runtime string, sandboxes []string) error
	// Peer returns the peer that sent a request, from its context; false if it is not known.
	Peer func(context.Context) (unixsock.Peer, bool)
	// Callers may call the API. Refusals logs the requests of others, and those that got a code of 400
	// to 499.
	Callers  unixsock.Callers
	Refusals *logging.Repeated
	// StateOnly: others than Callers get only the state from GET /healthz
	// (docs/operate/security.md, What healthz shows).
	StateOnly bool
	// Metrics serves GET /metrics; nil for none.
	Metrics http.Handler
	// Done, if not nil, is called for each request but GET /metrics, before its status code is sent:
	// a client that has its response finds it counted. The operation is empty for a request of none
	// of API.Operations.
	Done func(operation string, code int, duration time.Duration)
	// Log gets one line for each other request.
	Log logrus.FieldLogger
}

// API is the handler of the socket: the API under its base path /v1, and the metrics.
type API struct {
	Options
	// server is the generated server, which calls the handlers.
	server http.Handler
	log    *logrus.Entry
	routes *middleware.Context
	codes  map[string][]int
}

// New returns the API. It returns an error if an option is missing or if the embedded
// swagger.yaml cannot be read.
func New(o Options) (*API, error) {
	if o.Engine == nil || o.Reporter == nil || o.Peer == nil || o.Refusals == nil || o.Log == nil {
		return nil, errors.New("httpapi: options Engine, Reporter, Peer, Refusals and Log are required")
	}
	document, err := loads.Embedded(json.RawMessage("{}"), server.FlatSwaggerJSON)
	if err != nil {
		return nil, fmt.Errorf("httpapi: read the embedded swagger.yaml: %w", err)
	}
	o.DefaultPool = cmp.Or(o.DefaultPool, client.DefaultPool)
	codes := prepareRouting(document.Spec())
	api := operations.NewDelegatedIpamAPI(document)
	api.ServeError = serveError
	(&handlers{o}).register(api)
	if err := api.Validate(); err != nil {
		return nil, fmt.Errorf("httpapi: %w", err)
	}
	api.Init()
	return &API{
		Options: o,
		// RoutesHandler serves the operations only. The generated documentation pages load
		// scripts from other hosts, which a socket of the node must not offer.
		server: api.Context().RoutesHandler(nil),
		log:    o.Log.WithFields(nil), routes: api.Context(), codes: codes,
	}, nil
}

// prepareRouting returns the status codes of each operation, ascending, and removes the schemas of bodies from the
// specification: the generated code validates them, but the router would expand and keep them.
func prepareRouting(s *spec.Swagger) map[string][]int {
	s.Definitions = nil
	codes := map[string][]int{}
	for method, paths := range analysis.New(s).Operations() {
		for path, operation := range paths {
			name := method + " " + s.BasePath + path
			for code := range operation.Responses.StatusCodeResponses {
				codes[name] = append(codes[name], code)
			}
			slices.Sort(codes[name])
			for i := range operation.Parameters {
				operation.Parameters[i].Schema = nil
			}
		}
	}
	return codes
}

// Operations returns each operation, such as "POST /v1/ipam/{ip}", with the status codes that
// swagger.yaml documents for it, ascending.
func (a *API) Operations() map[string][]int { return a.codes }

// ServeHTTP serves a request and then writes one log line about it. The response is sent
// first: no client waits for the log. GET /metrics is neither counted nor logged.
func (a *API) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	began := time.Now()
	log, r := newRequestLog(rw, r)
	operation, r := a.operation(r)
	w := &writer{to: rw, head: r.Method == http.MethodHead, onStatus: func(code int) {
		if a.Done != nil && operation != metricsOperation {
			a.Done(operation, code, time.Since(began))
		}
	}}
	handler, r := a.authorize(operation, r)
	switch {
	case handler == nil:
		a.refuseCaller(w, r)
		return
	case operation == metricsOperation:
		handler.ServeHTTP(rw, r)
		return
	}
	a.serve(handler, w, r)
	duration := time.Since(began)
	if err := w.send(); err != nil {
		log.fields["error"] = clientClosed(err)
	}
	a.writeLog(log, r, operation, w.code, duration)
}

// metricsOperation is the operation of the metrics, which swagger.yaml lacks.
const metricsOperation = "GET /metrics"

// operation returns the operation of a request, empty if there is none, and the request to
// serve, which carries the route, so that it is looked up once.
func (a *API) operation(r *http.Request) (string, *http.Request) {
	if !upperCase(r.Method) {
		return "", r
	}
	if a.Metrics != nil && r.Method+" "+r.URL.Path == metricsOperation {
		return metricsOperation, r
	}
	route, routed, ok := a.routes.RouteInfo(r)
	if !ok {
		return "", r
	}
	return r.Method + " " + route.PathPattern, routed
}

// serve calls a handler. A panic does not leave serve, so that one request cannot terminate the
// process.
func (a *API) serve(handler http.Handler, w *writer, r *http.Request) {
	defer func() {
		if cause := recover(); cause != nil {
			a.handlePanic(w, r, cause)
		}
	}()
	if err := a.invalid(r); err != nil {
		logField(r.Context(), "error", err.Error())
		serveError(w, r, err)
		return
	}
	handler.ServeHTTP(w, r)
}

// handlePanic logs a panic and responds with 500 if nothing of the response has been sent. Generated
// code panics, too, if it cannot write a response because the client closed the connection.
func (a *API) handlePanic(w *writer, r *http.Request, cause any) {
	err, _ := cause.(error)
	switch {
	case r.Context().Err() != nil:
		logField(r.Context(), "error", clientClosed(cause))
		return
	case errors.Is(err, os.ErrDeadlineExceeded):
		logField(r.Context(), "error", fmt.Sprintf("the client did not read the response in time: %v", cause))
		return
	}
	logField(r.Context(), "error", fmt.Sprint(cause))
	logging.ForRequest(r.Context(), a.log).WithFields(logrus.Fields{
		"request": requestName(r), "panic": cause, "stacktrace": string(debug.Stack()),
	}).Error("Panic in a request")
	if w.reset() {
		serveError(w, r, errors.New("internal error"))
	}
}

func clientClosed(cause any) string {
	return fmt.Sprintf("the client closed the connection before it had the response: %v", cause)
}
