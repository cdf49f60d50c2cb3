package restapi

import (
	"cmp"
	"slices"
	"time"

	"github.com/go-openapi/strfmt"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/pkg/attachment"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

// attachments is the answer of GET /ipam, sorted by pool and owner.
func attachments(all []attachment.Attachment) []*models.Attachment {
	all = slices.SortedFunc(slices.Values(all), func(a, b attachment.Attachment) int {
		return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.ContainerID, b.ContainerID))
	})
	out := make([]*models.Attachment, 0, len(all))
	for _, a := range all {
		out = append(out, wireAttachment(a))
	}
	return out
}

func wireAttachment(a attachment.Attachment) *models.Attachment {
	out := &models.Attachment{
		Owner:       a.Owner,
		Pool:        a.Pool,
		Network:     a.Network,
		ContainerID: a.ContainerID,
		Node:        a.Node,
		State:       string(a.State),
		Addresses:   make([]*models.AttachmentAddress, 0, len(a.Result.Addresses)),
		Claims:      make([]string, 0, len(a.Claims)),
		ReleaseAt:   wireTime(a.ReleaseAt),
		Created:     strfmt.DateTime(a.Created),
		Changed:     strfmt.DateTime(a.Changed),
		Verified:    wireTime(a.Verified),
		LastUsed:    wireTime(a.LastUsed),
		Lost:        a.Lost,
		LastError:   a.LastError,
	}
	if n := len(a.Contexts); n > 0 {
		out.Interface = a.Contexts[n-1].IfName
	}
	for _, at := range a.Result.Addresses {
		out.Addresses = append(out.Addresses, wireAddress(at))
	}
	for _, f := range a.Claims {
		out.Claims = append(out.Claims, string(f))
	}
	if e := a.Expiration; e != nil {
		out.Expiration = &models.AttachmentExpiration{UUID: e.UUID, Deadline: strfmt.DateTime(e.Deadline)}
	}
	return out
}

func wireAddress(a call.Address) *models.AttachmentAddress {
	return &models.AttachmentAddress{
		Family:  string(record.FamilyOf(a.Addr())),
		IP:      a.Addr().String(),
		Prefix:  a.Prefix.String(),
		Gateway: addrText(a.Gateway),
	}
}

// wireTime is nil, and so left out of the answer, for the zero time.
func wireTime(t time.Time) *strfmt.DateTime {
	if t.IsZero() {
		return nil
	}
	wire := strfmt.DateTime(t)
	return &wire
}
