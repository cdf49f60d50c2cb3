package httpapi

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	apierrors "github.com/go-openapi/errors"
	"github.com/go-openapi/runtime/middleware"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/unixsock"
	"github.com/delegated-ipam/delegated-ipam/server/operations/ipam"
)

// errorResponse returns the response to a failed request, with the reason as its body.
type errorResponse func(reason, retryAfter string) middleware.Responder

// errorResponses are the error responses of one operation. The codes of swagger.yaml are Cilium's; a
// kind for which the operation documents no separate code gets the one of attachment.Failed.
type errorResponses map[attachment.Kind]errorResponse

var (
	allocateErrors = errorResponses{
		attachment.Failed:    failed(ipam.NewPostIpamFailure),
		attachment.Forbidden: refused(ipam.NewPostIpamForbidden),
	}
	restoreErrors = errorResponses{
		attachment.Failed:         failed(ipam.NewPostIpamIPFailure),
		attachment.Forbidden:      refused(ipam.NewPostIpamIPForbidden),
		attachment.FamilyDisabled: refused(ipam.NewPostIpamIPDisabled),
		attachment.Exists:         refused(ipam.NewPostIpamIPExists),
	}
	releaseErrors = errorResponses{
		attachment.Failed:         failed(ipam.NewDeleteIpamIPFailure),
		attachment.Forbidden:      refused(ipam.NewDeleteIpamIPForbidden),
		attachment.FamilyDisabled: refused(ipam.NewDeleteIpamIPDisabled),
		attachment.UnknownPool:    refused(ipam.NewDeleteIpamIPNotFound),
		attachment.NotFound:       refused(ipam.NewDeleteIpamIPNotFound),
	}
)

// refusal is a generated response to a request that the caller should not repeat.
type refusal[R any] interface {
	middleware.Responder
	WithPayload(models.Error) R
}

func refused[R refusal[R]](newResponder func() R) errorResponse {
	return func(reason, _ string) middleware.Responder {
		return newResponder().WithPayload(models.Error(reason))
	}
}

// failure is a generated response to a request that may succeed later.
type failure[R any] interface {
	refusal[R]
	WithRetryAfter(string) R
}

func failed[R failure[R]](newResponder func() R) errorResponse {
	return func(reason, retryAfter string) middleware.Responder {
		return newResponder().WithPayload(models.Error(reason)).WithRetryAfter(retryAfter)
	}
}

// respond returns the response to an error of the engine; one that is not an *attachment.Error
// is of kind Failed. The reason is logged, too.
func (e errorResponses) respond(ctx context.Context, err error) middleware.Responder {
	logField(ctx, "error", err.Error())
	kind, wait := attachment.Failed, time.Duration(0)
	var typed *attachment.Error
	if errors.As(err, &typed) {
		kind, wait = typed.Kind, typed.RetryAfter
	}
	logField(ctx, "kind", string(kind))
	newResponse, ok := e[kind]
	if !ok {
		newResponse = e[attachment.Failed]
	}
	return newResponse(err.Error(), retryAfter(wait))
}

// serveError responds to a request that no handler gets, or with a fault of the server, as errors.ServeError
// does: but in the form of the API's other errors.
func serveError(w http.ResponseWriter, r *http.Request, err error) {
	for { // the first of several, as in Cilium
		all, ok := errors.AsType[*apierrors.CompositeError](err)
		if !ok || len(all.Errors) == 0 {
			break
		}
		err = all.Errors[0]
	}
	if e, ok := errors.AsType[*apierrors.MethodNotAllowedError](err); ok {
		w.Header().Set("Allow", strings.Join(e.Allowed, ","))
	}
	code := http.StatusInternalServerError
	if e, ok := errors.AsType[apierrors.Error](err); ok {
		code = int(e.Code())
	}
	if code >= firstParameterCode {
		code = http.StatusUnprocessableEntity
	}
	if r.Method == http.MethodHead { // has no body
		w.WriteHeader(code)
		return
	}
	unixsock.WriteError(w, code, fmt.Sprint(err))
}

// firstParameterCode is the first of go-openapi's codes for an invalid parameter, which are not of HTTP.
const firstParameterCode = 600

// retryAfter returns the value of the header Retry-After in whole seconds (RFC 9110 section
// 10.2.3), rounded up; empty for no header.
func retryAfter(wait time.Duration) string {
	if wait <= 0 {
		return ""
	}
	return strconv.Itoa(int(math.Ceil(wait.Seconds())))
}
