package restapi

import (
	"context"
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/go-openapi/runtime/middleware"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/pkg/attachment"
	"github.com/delegated-ipam/delegated-ipam/pkg/response"
	"github.com/delegated-ipam/delegated-ipam/server/operations/ipam"
)

// errorResponse returns the response to a failed request. A response without a body in Cilium's
// contract has the reason in a header, and no retryAfter.
type errorResponse func(reason models.Error, retryAfter string) middleware.Responder

// errorResponses are the error responses of one operation. The codes of swagger.yaml and the
// empty bodies are Cilium's; a kind for which the operation documents no separate code gets the
// one of attachment.Failed.
type errorResponses map[attachment.Kind]errorResponse

func allocateErrors() errorResponses {
	return errorResponses{
		attachment.Forbidden:      noBody(ipam.NewPostIpamForbidden),
		attachment.FamilyDisabled: allocateFailure,
		attachment.UnknownPool:    allocateFailure,
		attachment.NotFound:       allocateFailure,
		attachment.Exists:         allocateFailure,
		attachment.Failed:         allocateFailure,
		attachment.Busy:           allocateFailure,
		attachment.Stopping:       allocateFailure,
	}
}

func restoreErrors() errorResponses {
	return errorResponses{
		attachment.Forbidden:      noBody(ipam.NewPostIpamIPForbidden),
		attachment.FamilyDisabled: noBody(ipam.NewPostIpamIPDisabled),
		attachment.UnknownPool:    restoreFailure,
		attachment.NotFound:       restoreFailure,
		attachment.Exists:         noBody(ipam.NewPostIpamIPExists),
		attachment.Failed:         restoreFailure,
		attachment.Busy:           restoreFailure,
		attachment.Stopping:       restoreFailure,
	}
}

func releaseErrors() errorResponses {
	return errorResponses{
		attachment.Forbidden:      noBody(ipam.NewDeleteIpamIPForbidden),
		attachment.FamilyDisabled: noBody(ipam.NewDeleteIpamIPDisabled),
		attachment.UnknownPool:    noBody(ipam.NewDeleteIpamIPNotFound),
		attachment.NotFound:       noBody(ipam.NewDeleteIpamIPNotFound),
		attachment.Exists:         releaseFailure,
		attachment.Failed:         releaseFailure,
		attachment.Busy:           releaseFailure,
		attachment.Stopping:       releaseFailure,
	}
}

func discardErrors() errorResponses {
	return errorResponses{
		attachment.Forbidden:      noBody(ipam.NewDeleteIpamForbidden),
		attachment.FamilyDisabled: discardFailure,
		attachment.UnknownPool:    noBody(ipam.NewDeleteIpamNotFound),
		attachment.NotFound:       noBody(ipam.NewDeleteIpamNotFound),
		attachment.Exists:         discardFailure,
		attachment.Failed:         discardFailure,
		attachment.Busy:           discardFailure,
		attachment.Stopping:       discardFailure,
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
