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
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/response"
	"github.com/delegated-ipam/delegated-ipam/server/operations/ipam"
)

// errorResponse returns the response to a failed request. A response without a body in Cilium's
// contract has the reason in a header, and no retryAfter.
type errorResponse func(reason models.Error, retryAfter string) middleware.Responder

// errorResponses are the error responses of one operation. The codes of swagger.yaml and the
// empty bodies are Cilium's; a kind for which the operation documents no separate code gets the
// one of attachment.Failed.
type errorResponses map[engine.Kind]errorResponse

func allocateErrors() errorResponses {
	return errorResponses{
		engine.Forbidden:      noBody(ipam.NewPostIpamForbidden),
		engine.FamilyDisabled: allocateFailure,
		engine.UnknownPool:    allocateFailure,
		engine.NotFound:       allocateFailure,
		engine.Exists:         allocateFailure,
		engine.Failed:         allocateFailure,
		engine.Busy:           allocateFailure,
		engine.Stopping:       allocateFailure,
	}
}

func restoreErrors() errorResponses {
	return errorResponses{
		engine.Forbidden:      noBody(ipam.NewPostIpamIPForbidden),
		engine.FamilyDisabled: noBody(ipam.NewPostIpamIPDisabled),
		engine.UnknownPool:    restoreFailure,
		engine.NotFound:       restoreFailure,
		engine.Exists:         noBody(ipam.NewPostIpamIPExists),
		engine.Failed:         restoreFailure,
		engine.Busy:           restoreFailure,
		engine.Stopping:       restoreFailure,
	}
}

func releaseErrors() errorResponses {
	return errorResponses{
		engine.Forbidden:      noBody(ipam.NewDeleteIpamIPForbidden),
		engine.FamilyDisabled: noBody(ipam.NewDeleteIpamIPDisabled),
		engine.UnknownPool:    noBody(ipam.NewDeleteIpamIPNotFound),
		engine.NotFound:       noBody(ipam.NewDeleteIpamIPNotFound),
		engine.Exists:         releaseFailure,
		engine.Failed:         releaseFailure,
		engine.Busy:           releaseFailure,
		engine.Stopping:       releaseFailure,
	}
}

func discardErrors() errorResponses {
	return errorResponses{
		engine.Forbidden:      noBody(ipam.NewDeleteIpamForbidden),
		engine.FamilyDisabled: discardFailure,
		engine.UnknownPool:    noBody(ipam.NewDeleteIpamNotFound),
		engine.NotFound:       noBody(ipam.NewDeleteIpamNotFound),
		engine.Exists:         discardFailure,
		engine.Failed:         discardFailure,
		engine.Busy:           discardFailure,
		engine.Stopping:       discardFailure,
	}
}

func allocateFailure(reason models.Error, retryAfter string) middleware.Responder {
	return ipam.NewPostIpamFailure().WithPayload(reason).WithRetryAfter(retryAfter)
}

func restoreFailure(reason models.Error, retryAfter string) middleware.Responder {
	return ipam.NewPostIpamIPFailure().WithPayload(reason).WithRetryAfter(retryAfter)
}

func releaseFailure(reason models.Error, retryAfter string) middleware.Responder {
	return ipam.NewDeleteIpamIPFailure().WithPayload(reason).WithRetryAfter(retryAfter)
}

func discardFailure(reason models.Error, retryAfter string) middleware.Responder {
	return ipam.NewDeleteIpamFailure().WithPayload(reason).WithRetryAfter(retryAfter)
}

// bodiless is a generated response without a body.
type bodiless[R any] interface {
	middleware.Responder
	WithDelegatedIpamReason(string) R
}

func noBody[R bodiless[R]](newResponder func() R) errorResponse {
	return func(reason models.Error, _ string) middleware.Responder {
		return newResponder().WithDelegatedIpamReason(response.Reason(string(reason)))
	}
}

// respond returns the response to an error of the engine; one that is not an *attachment.Error
// is of kind Failed. The reason is logged too, because that of a response without a body may be cut.
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
	return newResponse(models.Error(err.Error()), retryAfter(wait))
}

// retryAfter returns the value of the header Retry-After in whole seconds (RFC 9110 section
// 10.2.3), rounded up; empty for no header.
func retryAfter(wait time.Duration) string {
	if wait <= 0 {
		return ""
	}
	return strconv.Itoa(int(math.Ceil(wait.Seconds())))
}
