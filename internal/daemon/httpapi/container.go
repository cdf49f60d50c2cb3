package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/go-openapi/runtime/middleware"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/engine"
	"github.com/delegated-ipam/delegated-ipam/internal/failpoint"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/server/operations/cni"
)

// The operations of container interfaces (docs/install/pods.md).

var (
	addErrors = errorResponses{
		attachment.Failed:    failed(cni.NewAddContainerFailure),
		attachment.Forbidden: refused(cni.NewAddContainerForbidden),
		attachment.NotFound:  refused(cni.NewAddContainerNotFound),
	}
	delErrors = errorResponses{
		attachment.Failed:    failed(cni.NewDelContainerFailure),
		attachment.Forbidden: refused(cni.NewDelContainerForbidden),
		attachment.NotFound:  refused(cni.NewDelContainerNotFound),
	}
	checkErrors = errorResponses{
		attachment.Failed:    failed(cni.NewCheckContainerFailure),
		attachment.Forbidden: refused(cni.NewCheckContainerForbidden),
		attachment.NotFound:  refused(cni.NewCheckContainerNotFound),
	}
	gcErrors = errorResponses{
		attachment.Failed:    failed(cni.NewCollectGarbageFailure),
		attachment.Forbidden: refused(cni.NewCollectGarbageForbidden),
		attachment.NotFound:  refused(cni.NewCollectGarbageNotFound),
	}
)

// addContainer handles POST /cni/add.
func (h *handlers) addContainer(p cni.AddContainerParams) middleware.Responder {
	ctx := p.HTTPRequest.Context()
	c, err := containerOf(ctx, p.Request)
	if err != nil {
		return cni.NewAddContainerInvalid().WithPayload(models.Error(err.Error()))
	}
	if err := h.checkContainers(ctx); err != nil {
		return addErrors.respond(ctx, err)
	}
	if h.BeforeAdd != nil {
		if err := h.BeforeAdd(ctx, p.Request.Network, c); err != nil {
			return addErrors.respond(ctx, err)
		}
	}
	got, err := h.Engine.AddContainer(ctx, p.Request.Network, c)
	logContainer(ctx, c, got)
	failpoint.Reach(failpoint.ResponseDue)
	if err != nil {
		return addErrors.respond(ctx, err)
	}
	return cni.NewAddContainerOK().WithPayload(got.LastResult())
}

// delContainer handles POST /cni/del.
func (h *handlers) delContainer(p cni.DelContainerParams) middleware.Responder {
	ctx := p.HTTPRequest.Context()
	c, err := containerOf(ctx, p.Request)
	if err != nil {
		return cni.NewDelContainerInvalid().WithPayload(models.Error(err.Error()))
	}
	if err := h.checkContainers(ctx); err != nil {
		return delErrors.respond(ctx, err)
	}
	got, err := h.Engine.DelContainer(ctx, p.Request.Network, c)
	logContainer(ctx, c, got)
	failpoint.Reach(failpoint.ResponseDue)
	if err != nil {
		return delErrors.respond(ctx, err)
	}
	return cni.NewDelContainerOK()
}

// checkContainer handles POST /cni/check.
func (h *handlers) checkContainer(p cni.CheckContainerParams) middleware.Responder {
	ctx := p.HTTPRequest.Context()
	c, err := containerOf(ctx, p.Request)
	if err != nil {
		return cni.NewCheckContainerInvalid().WithPayload(models.Error(err.Error()))
	}
	if err := h.checkContainers(ctx); err != nil {
		return checkErrors.respond(ctx, err)
	}
	got, err := h.Engine.CheckContainer(ctx, p.Request.Network, c)
	logContainer(ctx, c, got)
	if err != nil {
		return checkErrors.respond(ctx, err)
	}
	return cni.NewCheckContainerOK()
}

// gc handles POST /cni/gc.
func (h *handlers) gc(p cni.CollectGarbageParams) middleware.Responder {
	ctx := p.HTTPRequest.Context()
	if err := h.checkContainers(ctx); err != nil {
		return gcErrors.respond(ctx, err)
	}
	logField(ctx, "network", p.Request.Network)
	var valid []call.Attachment
	for _, a := range p.Request.ValidAttachments {
		if a == nil {
			return cni.NewCollectGarbageInvalid().WithPayload("valid-attachments has an empty entry")
		}
		at := call.Attachment{ContainerID: a.ContainerID, IfName: a.Ifname}
		if err := checkAttachment(at); err != nil {
			return cni.NewCollectGarbageInvalid().WithPayload(models.Error("valid-attachments: " + err.Error()))
		}
		valid = append(valid, at)
	}
	if err := h.Engine.GC(ctx, p.Request.Network, valid); err != nil {
		return gcErrors.respond(ctx, err)
	}
	return cni.NewCollectGarbageOK()
}

// sandboxes handles POST /cni/sandboxes.
func (h *handlers) sandboxes(p cni.ReportSandboxesParams) middleware.Responder {
	ctx := p.HTTPRequest.Context()
	if err := h.checkContainers(ctx); err != nil {
		return cni.NewReportSandboxesForbidden().WithPayload(models.Error(err.Error()))
	}
	logField(ctx, "sandboxes", len(p.Request.Sandboxes))
	if err := h.Sandboxes(p.Request.Runtime, p.Request.Sandboxes); err != nil {
		return cni.NewReportSandboxesInvalid().WithPayload(models.Error(err.Error()))
	}
	return cni.NewReportSandboxesOK()
}

// errNotRuntime is why a caller may not make the requests of a container runtime.
var errNotRuntime = &attachment.Error{Kind: attachment.Forbidden, Err: errors.New("only root and the daemon's own user may add and release the addresses of containers")}

// checkContainers returns why the peer may not add, release or check container interfaces.
func (h *handlers) checkContainers(ctx context.Context) error {
	if h.user(ctx).Ordinary {
		return errNotRuntime
	}
	return nil
}

// logContainer adds to the log line of a request the attachment, and the ID that its runtime knows.
func logContainer(ctx context.Context, c call.Container, a engine.Attachment) {
	logAttachment(ctx, a)
	logField(ctx, "containerID", c.ContainerID)
}

// containerOf returns the parameters of a request, or what of them swagger.yaml cannot check.
func containerOf(ctx context.Context, r *models.CNIRequest) (call.Container, error) {
	c := call.Container{
		Attachment: call.Attachment{ContainerID: r.ContainerID, IfName: r.Ifname}, NetNS: r.Netns, Args: r.Args,
		CNIArgs: r.CniArgs, RuntimeConfig: r.RuntimeConfig,
	}
	logField(ctx, "network", r.Network)
	logField(ctx, "owner", attachment.ContainerOwner(r.ContainerID, r.Ifname))
	err := checkAttachment(c.Attachment)
	for name, object := range map[string]*json.RawMessage{"cni-args": &c.CNIArgs, "runtime-config": &c.RuntimeConfig} {
		var fields map[string]json.RawMessage
		if len(*object) == 0 || json.Unmarshal(*object, &fields) == nil && fields == nil {
			*object = nil // null, or absent
		} else if fields == nil {
			err = errors.Join(err, fmt.Errorf("%s is not a JSON object", name))
		}
	}
	if err != nil {
		logField(ctx, "error", err.Error())
	}
	return c, err
}

// checkAttachment returns an error for an ID or a name that no container interface has.
func checkAttachment(a call.Attachment) error {
	if !call.ValidRuntimeID(a.ContainerID) {
		return fmt.Errorf("container ID %q is not valid (CNI spec section 2)", a.ContainerID)
	}
	if !call.ValidIfName(a.IfName) {
		return fmt.Errorf("interface name %q is not valid; expected 1 to 15 characters, such as eth0", a.IfName)
	}
	return nil
}
