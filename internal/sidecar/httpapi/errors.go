package httpapi

import (
	"context"
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/go-openapi/runtime/middleware"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/engine/protocol"
	"github.com/delegated-ipam/delegated-ipam/server/operations/ipam"
)

// errorResponse returns the response to a failed request. A response without a body in Cilium's
// contract has the reason in a header, and no retryAfter.
type errorResponse func(reason, retryAfter string) middleware.Responder

// errorResponses are the error responses of one operation. The codes of swagger.yaml and the
// empty bodies are Cilium's; a kind for which the operation documents no separate code gets the
// one of protocol.Failed.
type errorResponses map[protocol.Kind]errorResponse

var (
	allocateErrors = errorResponses{
		protocol.Failed:    withBody(ipam.NewPostIpamFailure),
		protocol.Forbidden: noBody(ipam.NewPostIpamForbidden),
	}
	restoreErrors = errorResponses{
		protocol.Failed:         withBody(ipam.NewPostIpamIPFailure),
		protocol.Forbidden:      noBody(ipam.NewPostIpamIPForbidden),
		protocol.FamilyDisabled: noBody(ipam.NewPostIpamIPDisabled),
		protocol.Exists:         noBody(ipam.NewPostIpamIPExists),
	}
	releaseErrors = errorResponses{
		protocol.Failed:         withBody(ipam.NewDeleteIpamIPFailure),
		protocol.Forbidden:      noBody(ipam.NewDeleteIpamIPForbidden),
		protocol.FamilyDisabled: noBody(ipam.NewDeleteIpamIPDisabled),
		protocol.UnknownPool:    noBody(ipam.NewDeleteIpamIPNotFound),
		protocol.NotFound:       noBody(ipam.NewDeleteIpamIPNotFound),
	}
	discardErrors = errorResponses{
		protocol.Failed:      withBody(ipam.NewDeleteIpamFailure),
		protocol.Forbidden:   noBody(ipam.NewDeleteIpamForbidden),
		protocol.UnknownPool: noBody(ipam.NewDeleteIpamNotFound),
		protocol.NotFound:    noBody(ipam.NewDeleteIpamNotFound),
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

// respond returns the response to an error of the engine; one that is not an *protocol.Error
// is of kind Failed. The reason is logged too, because a header with the reason may be cut.
func (e errorResponses) respond(ctx context.Context, err error) middleware.Responder {
	logField(ctx, "error", err.Error())
	kind, wait := protocol.Failed, time.Duration(0)
	var typed *protocol.Error
	if errors.As(err, &typed) {
		kind, wait = typed.Kind, typed.RetryAfter
	}
	logField(ctx, "kind", string(kind))
	newResponse, ok := e[kind]
	if !ok {
		newResponse = e[protocol.Failed]
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
