package httpapi

import (
	"context"
	"errors"

	"github.com/go-openapi/runtime/middleware"
	"github.com/go-openapi/swag/conv"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/engine"
	"github.com/delegated-ipam/delegated-ipam/internal/failpoint"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
	"github.com/delegated-ipam/delegated-ipam/server/operations"
	"github.com/delegated-ipam/delegated-ipam/server/operations/cni"
	"github.com/delegated-ipam/delegated-ipam/server/operations/daemon"
	"github.com/delegated-ipam/delegated-ipam/server/operations/ipam"
)

// handlers implements the operations of swagger.yaml.
type handlers struct{ Options }

func (h *handlers) register(api *operations.DelegatedIpamAPI) {
	api.IpamPostIpamHandler = ipam.PostIpamHandlerFunc(h.allocate)
	api.IpamPostIpamIPHandler = ipam.PostIpamIPHandlerFunc(h.restore)
	api.IpamDeleteIpamIPHandler = ipam.DeleteIpamIPHandlerFunc(h.release)
	api.IpamListAttachmentsHandler = ipam.ListAttachmentsHandlerFunc(h.list)
	api.CniAddContainerHandler = cni.AddContainerHandlerFunc(h.addContainer)
	api.CniDelContainerHandler = cni.DelContainerHandlerFunc(h.delContainer)
	api.CniCheckContainerHandler = cni.CheckContainerHandlerFunc(h.checkContainer)
	api.CniCollectGarbageHandler = cni.CollectGarbageHandlerFunc(h.gc)
	api.CniReportSandboxesHandler = cni.ReportSandboxesHandlerFunc(h.sandboxes)
	api.DaemonGetHealthzHandler = daemon.GetHealthzHandlerFunc(h.healthz)
	api.DaemonGetConfigHandler = daemon.GetConfigHandlerFunc(h.config)
}

// allocate handles POST /ipam.
func (h *handlers) allocate(p ipam.PostIpamParams) middleware.Responder {
	ctx := p.HTTPRequest.Context()
	request := engine.AllocateRequest{
		User:   h.user(ctx),
		Owner:  conv.Value(p.Owner),
		Pool:   h.poolName(p.Pool),
		Family: attachment.Family(conv.Value(p.Family)),
		Expire: conv.Value(p.Expiration),
	}
	if err := checkOwner(request.Owner); err != nil {
		return invalidParameter(p.HTTPRequest, err)
	}
	logRequest(ctx, request.Owner, request.Pool, request.Family)
	got, err := h.Engine.Allocate(ctx, request)
	logAttachment(ctx, got)
	failpoint.Reach(failpoint.ResponseDue)
	if err != nil {
		return allocateErrors.respond(ctx, err)
	}
	return ipam.NewPostIpamCreated().WithPayload(h.allocation(got, request.Family))
}

// restore handles POST /ipam/{ip}.
func (h *handlers) restore(p ipam.PostIpamIPParams) middleware.Responder {
	ctx := p.HTTPRequest.Context()
	request := engine.RestoreRequest{User: h.user(ctx), Owner: conv.Value(p.Owner), Pool: h.poolName(p.Pool)}
	if err := checkOwner(request.Owner); err != nil {
		return invalidParameter(p.HTTPRequest, err)
	}
	var err error
	if request.IP, err = parseIP(p.IP); err == nil {
		request.Also, err = parseAlso(conv.Value(p.Also), request.IP)
	}
	if err != nil {
		logField(ctx, "error", err.Error())
		return ipam.NewPostIpamIPInvalid().WithPayload(models.Error(err.Error()))
	}
	logRequest(ctx, request.Owner, request.Pool, "")
	got, err := h.Engine.Restore(ctx, request)
	logAttachment(ctx, got)
	failpoint.Reach(failpoint.ResponseDue)
	if err != nil {
		return restoreErrors.respond(ctx, err)
	}
	return ipam.NewPostIpamIPOK()
}

// release handles DELETE /ipam/{ip}.
func (h *handlers) release(p ipam.DeleteIpamIPParams) middleware.Responder {
	ctx := p.HTTPRequest.Context()
	request := engine.ReleaseRequest{User: h.user(ctx), Pool: h.poolName(p.Pool), Owner: conv.Value(p.Owner), SkipDelay: conv.Value(p.SkipReleaseDelay)}
	var err error
	if request.IP, err = parseIP(p.IP); err != nil {
		logField(ctx, "error", err.Error())
		return ipam.NewDeleteIpamIPInvalid().WithPayload(models.Error(err.Error()))
	}
	logRequest(ctx, "", request.Pool, "")
	if lease := conv.Value(p.Lease); lease != "" {
		if err = errNotOwner; !request.User.Ordinary {
			err = h.ReleaseLease(ctx, request.Pool, request.IP, lease)
		}
	} else {
		var got engine.Attachment
		got, err = h.Engine.Release(ctx, request)
		logAttachment(ctx, got)
	}
	failpoint.Reach(failpoint.ResponseDue)
	if err != nil {
		return releaseErrors.respond(ctx, err)
	}
	return ipam.NewDeleteIpamIPOK()
}

// errNotOwner is why a caller may not release a lease.
var errNotOwner = &attachment.Error{Kind: attachment.Forbidden, Err: errors.New("only root and the daemon's own user may release a lease without an attachment")}

// user returns the user who sent a request.
func (h *handlers) user(ctx context.Context) engine.User {
	peer, known := h.Peer(ctx)
	return engine.User{ID: peer.UID, Ordinary: !known || !peer.Privileged()}
}

// poolName returns the pool of a request. The name "default" always means the default pool: it is
// what clients send that do not know another one.
func (h *handlers) poolName(pool *string) string {
	if name := conv.Value(pool); name != "" && name != client.DefaultPool {
		return name
	}
	return h.DefaultPool
}

// logRequest adds the parameters of a request to its log line; empty ones are left out.
func logRequest(ctx context.Context, owner, pool string, family attachment.Family) {
	if family != "" {
		logField(ctx, "family", string(family))
	}
	if owner != "" {
		logField(ctx, "owner", owner)
	}
	logField(ctx, "poolName", pool)
}

// logAttachment adds an attachment to the log line of its request; unknown properties are left out.
func logAttachment(ctx context.Context, a engine.Attachment) {
	if id := a.IDInUse(); id != "" {
		logField(ctx, "containerID", id)
	}
	if a.Owner != "" {
		logField(ctx, "owner", a.Owner)
	}
	if ips := a.Addrs(); len(ips) > 0 {
		logField(ctx, "ipAddrs", ips)
	}
}

// list handles GET /ipam.
func (h *handlers) list(p ipam.ListAttachmentsParams) middleware.Responder {
	return attachmentList{p.HTTPRequest.Context(), h.Engine.All()}
}

// healthz handles GET /healthz. The header require-k8s-connectivity has no effect, because the
// daemon has no connection to Kubernetes.
func (h *handlers) healthz(p daemon.GetHealthzParams) middleware.Responder {
	report := h.Reporter.Report(p.HTTPRequest.Context(), conv.Value(p.Network))
	status := briefStatus(report)
	if !conv.Value(p.Brief) {
		h.complete(status, report)
	}
	return daemon.NewGetHealthzOK().WithPayload(status)
}

// config handles GET /config. It waits for no lock of the engine: it is the request of the liveness
// probe (cli, probe live).
func (h *handlers) config(daemon.GetConfigParams) middleware.Responder {
	return daemon.NewGetConfigOK().WithPayload(h.configuration())
}
