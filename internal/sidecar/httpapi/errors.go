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

// errorResponse returns the response to a failed request, with the reason as its body.
type errorResponse func(reason, retryAfter string) middleware.Responder

// errorResponses are the error responses of one operation. The codes of swagger.yaml are Cilium's; a
// kind for which the operation documents no separate code gets the one of protocol.Failed.
type errorResponses map[protocol.Kind]errorResponse

var (
	allocateErrors = errorResponses{
		protocol.Failed:    failed(ipam.NewPostIpamFailure),
		protocol.Forbidden: refused(ipam.NewPostIpamForbidden),
	}
	restoreErrors = errorResponses{
		protocol.Failed:         failed(ipam.NewPostIpamIPFailure),
		protocol.Forbidden:      refused(ipam.NewPostIpamIPForbidden),
		protocol.FamilyDisabled: refused(ipam.NewPostIpamIPDisabled),
		protocol.Exists:         refused(ipam.NewPostIpamIPExists),
	}
	releaseErrors = errorResponses{
		protocol.Failed:         failed(ipam.NewDeleteIpamIPFailure),
		protocol.Forbidden:      refused(ipam.NewDeleteIpamIPForbidden),
		protocol.FamilyDisabled: refused(ipam.NewDeleteIpamIPDisabled),
		protocol.UnknownPool:    refused(ipam.NewDeleteIpamIPNotFound),
		protocol.NotFound:       refused(ipam.NewDeleteIpamIPNotFound),
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

// respond returns the response to an error of the engine; one that is not an *protocol.Error
// is of kind Failed. The reason is logged, too.
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
