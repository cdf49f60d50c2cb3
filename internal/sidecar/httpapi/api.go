package httpapi

import (
	goerrors "errors"
	"fmt"
	"net/http"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/go-openapi/analysis"
	"github.com/go-openapi/errors"
	"github.com/go-openapi/runtime/middleware"
	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/response"
)

// API is the handler of the API under its base path /v1.
type API struct {
	// server is the generated server, which calls the handlers.
	server   http.Handler
	reporter Reporter
	log      *logrus.Entry
	// onUnread is Options.OnUnread; it may be nil.
	onUnread onUnreadFunc

	routes *middleware.Context
	codes  map[string][]int
}

// ServeHTTP serves a request and then writes one log line about it. The response is sent
// first: no client waits for the log.
func (a *API) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	began := time.Now()
	log := newRequestLog()
	if id := logging.RequestID(r.Context()); id != "" {
		log.add(logging.FieldRequestID, id)
	}
	ctx := log.inContext(r.Context())
	w := response.NewBuffer(rw, r)
	a.serve(w, r.WithContext(ctx))
	duration := time.Since(began)
	err := w.Send()
	if err != nil {
		log.add("error", clientClosed(err))
	}
	log.reportUndelivered(ctx, w.Status(), err, a.onUnread)
	log.write(a.log, r, w.Status(), duration)
}

// serve calls the generated server, unless it refuses the request. A panic does not leave serve, so
// that one request cannot terminate the process.
func (a *API) serve(w *response.Writer, r *http.Request) {
	defer func() {
		if cause := recover(); cause != nil {
			a.handlePanic(w, r, cause)
		}
	}()
	if err := a.refuse(r); err != nil {
		logField(r.Context(), "error", err.Error())
		errors.ServeError(w, r, err)
		return
	}
	a.server.ServeHTTP(w, r)
}

// refuse returns an error for a request that the generated server must not get:
//
//   - one whose method is not in upper case. Methods are case-sensitive (RFC 9110 section 9.1), but
//     the generated server would take post for POST.
//   - one with a query that cannot be decoded. net/http drops such a parameter silently, so that a
//     misspelt owner would become an empty one and get a separate attachment.
func (a *API) refuse(r *http.Request) error {
	if !upperCase(r.Method) {
		// No method is left out of those of the path.
		allowed := a.routes.AllowedMethods(&http.Request{URL: r.URL})
		if len(allowed) == 0 {
			return errors.NotFound("path %s was not found", r.URL.EscapedPath())
		}
		return errors.MethodNotAllowed(r.Method, allowed)
	}
	if err := checkQuery(r.URL.RawQuery); err != nil {
		return errors.New(http.StatusUnprocessableEntity, "query cannot be decoded: %s", err)
	}
	return nil
}

func upperCase(method string) bool { return method == strings.ToUpper(method) }

// handlePanic logs a panic and answers 500 if nothing of the response has been sent. Generated
// code panics, too, if it cannot write a response because the client closed the connection.
func (a *API) handlePanic(w *response.Writer, r *http.Request, cause any) {
	err, _ := cause.(error)
	switch {
	case r.Context().Err() != nil:
		logField(r.Context(), "error", clientClosed(cause))
		return
	case goerrors.Is(err, os.ErrDeadlineExceeded):
		logField(r.Context(), "error", fmt.Sprintf("the client did not read the response in time: %v", cause))
		return
	}
	logField(r.Context(), "error", fmt.Sprint(cause))
	logging.ForRequest(r.Context(), a.log).WithFields(logrus.Fields{
		"request": requestName(r), "panic": cause, "stacktrace": string(debug.Stack()),
	}).Error("Panic in a request")
	if w.Reset() {
		errors.ServeError(w, r, errors.New(http.StatusInternalServerError, "internal error"))
	}
}

func clientClosed(cause any) string {
	return fmt.Sprintf("the client closed the connection before it had the response: %v", cause)
}

// Operations returns each operation, such as "POST /v1/ipam/{ip}", with the status codes that
// swagger.yaml documents for it, ascending.
func (a *API) Operations() map[string][]int { return a.codes }

// Operation returns the operation of a request, empty if there is none, and the request to
// serve, which carries the route, so that it is looked up once.
func (a *API) Operation(r *http.Request) (string, *http.Request) {
	if !upperCase(r.Method) {
		return "", r
	}
	route, routed, ok := a.routes.RouteInfo(r)
	if !ok {
		return "", r
	}
	return r.Method + " " + route.PathPattern, routed
}

// documentedCodes returns the status codes of each operation, ascending.
func documentedCodes(spec *analysis.Spec, basePath string) map[string][]int {
	codes := map[string][]int{}
	for method, paths := range spec.Operations() {
		for path, operation := range paths {
			name := method + " " + basePath + path
			for code := range operation.Responses.StatusCodeResponses {
				codes[name] = append(codes[name], code)
			}
			slices.Sort(codes[name])
		}
	}
	return codes
}
