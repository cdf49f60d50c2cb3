package httpapi

import (
	"context"
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/go-openapi/runtime/middleware"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/engine"
	"github.com/delegated-ipam/delegated-ipam/server/operations/ipam"
)

// errorResponse returns the response to a failed request. A response without a body in Cilium's
// contract has the reason in a header, and no retryAfter.
type errorResponse func(reason, retryAfter string) middleware.Responder

// errorResponses are the error responses of one operation. The codes of swagger.yaml and the
// empty bodies are Cilium's; a kind for which the operation documents no separate code gets the
// one of engine.Failed.
type errorResponses map[engine.Kind]errorResponse

var (
	allocateErrors = errorResponses{
		engine.Failed:    withBody(ipam.NewPostIpamFailure),
		engine.Forbidden: noBody(ipam.NewPostIpamForbidden),
	}
	restoreErrors = errorResponses{
		engine.Failed:         withBody(ipam.NewPostIpamIPFailure),
		engine.Forbidden:      noBody(ipam.NewPostIpamIPForbidden),
		engine.FamilyDisabled: noBody(ipam.NewPostIpamIPDisabled),
		engine.Exists:         noBody(ipam.NewPostIpamIPExists),
	}
	releaseErrors = errorResponses{
		engine.Failed:         withBody(ipam.NewDeleteIpamIPFailure),
		engine.Forbidden:      noBody(ipam.NewDeleteIpamIPForbidden),
		engine.FamilyDisabled: noBody(ipam.NewDeleteIpamIPDisabled),
		engine.UnknownPool:    noBody(ipam.NewDeleteIpamIPNotFound),
		engine.NotFound:       noBody(ipam.NewDeleteIpamIPNotFound),
	}
	discardErrors = errorResponses{
		engine.Failed:      withBody(ipam.NewDeleteIpamFailure),
		engine.Forbidden:   noBody(ipam.NewDeleteIpamForbidden),
		engine.UnknownPool: noBody(ipam.NewDeleteIpamNotFound),
		engine.NotFound:    noBody(ipam.NewDeleteIpamNotFound),
	}
)

// bodiless is a generated response without a body.
type bodiless[R any] interface {
	middleware.Responder
	WithDelegatedIpamReason(string) R
}

func noBody[R bodiless[R]](newResponder func() R) errorResponse {
	return func(reason, _ string) middleware.Responder {
		return newResponder().WithDelegatedIpamReason(reasonValue(reason))
	}
}

// failing is a generated response with the reason as its body.
type failing[R any] interface {
	middleware.Responder
	WithPayload(models.Error) R
	WithRetryAfter(string) R
}

func withBody[R failing[R]](newResponder func() R) errorResponse {
	return func(reason, retryAfter string) middleware.Responder {
		return newResponder().WithPayload(models.Error(reason)).WithRetryAfter(retryAfter)
	}
}

// respond returns the response to an error of the engine; one that is not an *engine.Error
// is of kind Failed. The reason is logged too, because a header with the reason may be cut.
func (e errorResponses) respond(ctx context.Context, err error) middleware.Responder {
	logField(ctx, "error", err.Error())
	kind, wait := engine.Failed, time.Duration(0)
	var typed *engine.Error
	if errors.As(err, &typed) {
		kind, wait = typed.Kind, typed.RetryAfter
	}
	logField(ctx, "kind", string(kind))
	newResponse, ok := e[kind]
	if !ok {
		newResponse = e[engine.Failed]
	}
	return newResponse(err.Error(), retryAfter(wait))
}

// retryAfter returns the value of the header Retry-After in whole seconds (RFC 9110 section
// 10.2.3), rounded up; empty for no header.
func retryAfter(wait time.Duration) string {
	if wait <= 0 {
		return ""
	}
	return strconv.Itoa(int(math.Ceil(wait.Seconds())))
}
