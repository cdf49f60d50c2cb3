package restapi

import (
	"cmp"
	"context"

	"github.com/go-openapi/runtime/middleware"
	"github.com/go-openapi/swag/conv"

	"github.com/delegated-ipam/delegated-ipam/pkg/attachment"
	"github.com/delegated-ipam/delegated-ipam/pkg/failpoint"
	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
	"github.com/delegated-ipam/delegated-ipam/server/operations"
	"github.com/delegated-ipam/delegated-ipam/server/operations/daemon"
	"github.com/delegated-ipam/delegated-ipam/server/operations/ipam"
)

// handlers answers the operations of swagger.yaml.
type handlers struct {
	engine   Engine
	reporter Reporter
	node     Addressing
	refusals refusals
}

func (h *handlers) register(api *operations.DelegatedIpamAPI) {
	api.IpamPostIpamHandler = ipam.PostIpamHandlerFunc(h.allocate)
	api.IpamPostIpamIPHandler = ipam.PostIpamIPHandlerFunc(h.restore)
	api.IpamDeleteIpamIPHandler = ipam.DeleteIpamIPHandlerFunc(h.release)
	api.IpamGetIpamHandler = ipam.GetIpamHandlerFunc(h.list)
	api.DaemonGetHealthzHandler = daemon.GetHealthzHandlerFunc(h.healthz)
	api.DaemonGetConfigHandler = daemon.GetConfigHandlerFunc(h.config)
}

// allocate answers POST /ipam.
func (h *handlers) allocate(p ipam.PostIpamParams) middleware.Responder {
	ctx := p.HTTPRequest.Context()
	owner := conv.Value(p.Owner)
	if err := checkOwner(owner); err != nil {
		return unprocessable(ctx, p.HTTPRequest, err)
	}
	family := record.Family(conv.Value(p.Family))
	if family != "" {
		note(ctx, "family", string(family))
	}
	noteOwner(ctx, owner)
	got, err := h.engine.Allocate(ctx, attachment.AllocateRequest{
		Owner:  owner,
		Pool:   poolOf(ctx, p.Pool),
		Family: family,
		Expire: conv.Value(p.Expiration),
	})
	noteAttachment(ctx, got)
	failpoint.Reach(failpoint.AnswerDue)
	if err != nil {
		return h.refusals.answer(ctx, opAllocate, err)
	}
	h.abandonUnread(ctx, owner, got)
	return ipam.NewPostIpamCreated().WithPayload(h.node.response(got, family, h.engine.Lookup))
}

// restore answers POST /ipam/{ip}.
func (h *handlers) restore(p ipam.PostIpamIPParams) middleware.Responder {
	ctx := p.HTTPRequest.Context()
	owner := conv.Value(p.Owner)
	if err := checkOwner(owner); err != nil {
		return unprocessable(ctx, p.HTTPRequest, err)
	}
	ip, err := parseIP(p.IP)
	if err != nil {
		note(ctx, "error", err.Error())
		return ipam.NewPostIpamIPInvalid()
	}
	noteOwner(ctx, owner)
	got, err := h.engine.Restore(ctx, attachment.RestoreRequest{IP: ip, Owner: owner, Pool: poolOf(ctx, p.Pool)})
	noteAttachment(ctx, got)
	failpoint.Reach(failpoint.AnswerDue)
	if err != nil {
		return h.refusals.answer(ctx, opRestore, err)
	}
	h.abandonUnread(ctx, owner, got)
	return ipam.NewPostIpamIPOK()
}

// abandonUnread releases what was allocated without an owner if the client does not get
// the response: it does not know the generated owner, so it cannot ask again.
func (h *handlers) abandonUnread(ctx context.Context, owner string, got attachment.Attachment) {
	if owner == "" {
		onUndelivered(ctx, func() { h.engine.Abandon(got.Pool, got.Owner) })
	}
}

// release answers DELETE /ipam/{ip}.
func (h *handlers) release(p ipam.DeleteIpamIPParams) middleware.Responder {
	ctx := p.HTTPRequest.Context()
	ip, err := parseIP(p.IP)
	if err != nil {
		note(ctx, "error", err.Error())
		return ipam.NewDeleteIpamIPInvalid()
	}
	got, err := h.engine.Release(ctx, attachment.ReleaseRequest{
		IP: ip, Pool: poolOf(ctx, p.Pool), SkipDelay: conv.Value(p.SkipReleaseDelay),
	})
	noteAttachment(ctx, got)
	failpoint.Reach(failpoint.AnswerDue)
	if err != nil {
		return h.refusals.answer(ctx, opRelease, err)
	}
	return ipam.NewDeleteIpamIPOK()
}

// noteAttachment names the attachment in the request's log line, as far as it is known.
func noteAttachment(ctx context.Context, a attachment.Attachment) {
	if a.ContainerID != "" {
		note(ctx, "containerID", a.ContainerID)
	}
	noteOwner(ctx, a.Owner)
	if ips := a.Addrs(); len(ips) > 0 {
		note(ctx, "ipAddrs", ips)
	}
}

func noteOwner(ctx context.Context, owner string) {
	if owner != "" {
		note(ctx, "owner", owner)
	}
}

// poolOf returns the pool asked for, and notes it for the request's log line.
func poolOf(ctx context.Context, pool *string) string {
	name := cmp.Or(conv.Value(pool), attachment.DefaultPool)
	note(ctx, "poolName", name)
	return name
}

// list answers GET /ipam.
func (h *handlers) list(ipam.GetIpamParams) middleware.Responder {
	return attachmentList(h.engine.All())
}

// healthz answers GET /healthz. The header require-k8s-connectivity changes
// nothing, because nothing here talks to Kubernetes.
func (h *handlers) healthz(p daemon.GetHealthzParams) middleware.Responder {
	report := h.reporter.Report(p.HTTPRequest.Context())
	if conv.Value(p.Brief) {
		return daemon.NewGetHealthzOK().WithPayload(report.brief())
	}
	return daemon.NewGetHealthzOK().WithPayload(report.full(h.node, h.engine.All()))
}

// config answers GET /config. The engine is asked even where its answer is not
// needed: an answer tells who probes that it is not locked for good (cli, probe live).
func (h *handlers) config(daemon.GetConfigParams) middleware.Responder {
	router, held := h.engine.Lookup(attachment.DefaultPool, routerOwner)
	find := func(string, string) (attachment.Attachment, bool) { return router, held }
	return daemon.NewGetConfigOK().WithPayload(h.node.configuration(find))
}
