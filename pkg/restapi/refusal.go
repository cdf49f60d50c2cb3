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
	"github.com/delegated-ipam/delegated-ipam/server/operations/ipam"
)

type operation string

const (
	opAllocate operation = "allocate"
	opRestore  operation = "restore"
	opRelease  operation = "release"
)

// refusal makes the answer to a request that was not fulfilled. An answer that
// has no body in Cilium's contract drops both reason and retryAfter.
type refusal func(reason models.Error, retryAfter string) middleware.Responder

// refusals is the table of every answer to every class of failure.
type refusals map[operation]map[attachment.Kind]refusal

// newRefusals says which status code of swagger.yaml each failure gets. Codes
// and empty bodies are Cilium's; where an operation documents no code of its own
// for a kind, it is the operation's failure.
func newRefusals() refusals {
	return refusals{
		opAllocate: {
			attachment.Forbidden:      empty(ipam.NewPostIpamForbidden),
			attachment.FamilyDisabled: allocateFailure,
			attachment.UnknownPool:    allocateFailure,
			attachment.NotFound:       allocateFailure,
			attachment.Exists:         allocateFailure,
			attachment.Failed:         allocateFailure,
			attachment.Busy:           allocateFailure,
			attachment.Stopping:       allocateFailure,
		},
		opRestore: {
			attachment.Forbidden:      empty(ipam.NewPostIpamIPForbidden),
			attachment.FamilyDisabled: empty(ipam.NewPostIpamIPDisabled),
			attachment.UnknownPool:    restoreFailure,
			attachment.NotFound:       restoreFailure,
			attachment.Exists:         empty(ipam.NewPostIpamIPExists),
			attachment.Failed:         restoreFailure,
			attachment.Busy:           restoreFailure,
			attachment.Stopping:       restoreFailure,
		},
		opRelease: {
			attachment.Forbidden:      empty(ipam.NewDeleteIpamIPForbidden),
			attachment.FamilyDisabled: empty(ipam.NewDeleteIpamIPDisabled),
			attachment.UnknownPool:    empty(ipam.NewDeleteIpamIPNotFound),
			attachment.NotFound:       empty(ipam.NewDeleteIpamIPNotFound),
			attachment.Exists:         releaseFailure,
			attachment.Failed:         releaseFailure,
			attachment.Busy:           releaseFailure,
			attachment.Stopping:       releaseFailure,
		},
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

func empty[R middleware.Responder](newAnswer func() R) refusal {
	return func(models.Error, string) middleware.Responder { return newAnswer() }
}

// answer returns what the table says for an error of the engine; one that is no
// *attachment.Error is a plain failure. The reason goes into the request's log
// line too, because some answers have no body.
func (r refusals) answer(ctx context.Context, op operation, err error) middleware.Responder {
	note(ctx, "error", err.Error())
	kind, wait := attachment.Failed, time.Duration(0)
	var refused *attachment.Error
	if errors.As(err, &refused) {
		kind, wait = refused.Kind, refused.RetryAfter
	}
	note(ctx, "kind", string(kind))
	newAnswer, known := r[op][kind]
	if !known {
		newAnswer = r[op][attachment.Failed]
	}
	return newAnswer(models.Error(err.Error()), retryAfter(wait))
}

// retryAfter is the value of the header in whole seconds (RFC 9110 section
// 10.2.3), never too early; empty for none.
func retryAfter(wait time.Duration) string {
	if wait <= 0 {
		return ""
	}
	return strconv.Itoa(int(math.Ceil(wait.Seconds())))
}
