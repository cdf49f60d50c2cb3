package httpapi

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"iter"
	"net/http"
	"time"

	"github.com/go-openapi/runtime"
	"github.com/go-openapi/strfmt"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/engine"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

const (
	// listBuffer is the size in bytes of the parts in which the list is sent.
	listBuffer = 32 << 10
	// listPartTimeout is how long the client of a list may take to read one part.
	listPartTimeout = 10 * time.Second
	// listTimeout is how long the whole list may take: Cilium's clients end a request after 90 s.
	listTimeout = 90 * time.Second
)

// attachmentList is the response to GET /ipam, the JSON of ipam.ListAttachmentsOK. It is encoded and
// sent in parts, because 100,000 attachments are 50 MB. It ends with ctx, the context of the request.
type attachmentList struct {
	ctx context.Context
	all iter.Seq[engine.Attachment]
}

// listWriter writes the parts of a list with a time limit for each, so that lists that no client
// reads do not use memory for long.
type listWriter struct {
	http.ResponseWriter
	end time.Time
}

func (w listWriter) Write(part []byte) (int, error) {
	deadline := time.Now().Add(listPartTimeout)
	if deadline.After(w.end) {
		deadline = w.end
	}
	err := http.NewResponseController(w.ResponseWriter).SetWriteDeadline(deadline)
	if err != nil && !errors.Is(err, http.ErrNotSupported) {
		return 0, err
	}
	return w.ResponseWriter.Write(part)
}

// WriteResponse implements middleware.Responder. Like generated code, it panics if the response
// cannot be written.
func (l attachmentList) WriteResponse(rw http.ResponseWriter, producer runtime.Producer) {
	rw.WriteHeader(http.StatusOK)
	out := bufio.NewWriterSize(listWriter{rw, time.Now().Add(listTimeout)}, listBuffer)
	if err := errors.Join(l.encode(out, producer), out.Flush()); err != nil {
		panic(err)
	}
}

// encode writes the list as one JSON array, with the output that the producer has for a slice.
func (l attachmentList) encode(out *bufio.Writer, producer runtime.Producer) error {
	var element bytes.Buffer
	separator := "["
	for a := range l.all {
		if err := l.ctx.Err(); err != nil {
			return err
		}
		element.Reset()
		if err := producer.Produce(&element, attachmentModel(a)); err != nil {
			return err
		}
		_, _ = out.WriteString(separator)
		if _, err := out.Write(bytes.TrimSuffix(element.Bytes(), []byte("\n"))); err != nil {
			return err // bufio.Writer also returns the error of an earlier write
		}
		separator = ","
	}
	if separator == "[" {
		_, _ = out.WriteString("[")
	}
	_, err := out.WriteString("]\n")
	return err
}

func attachmentModel(a engine.Attachment) *models.Attachment {
	out := &models.Attachment{
		Owner:       a.Owner,
		Pool:        a.Pool,
		Network:     a.Network,
		ContainerID: a.IDInUse(),
		Pod:         a.Pod(),
		Node:        a.Node,
		State:       string(a.State),
		Addresses:   make([]*models.AttachmentAddress, 0, len(a.Result.Addresses)),
		Claims:      make([]string, 0, len(a.Claims)),
		ReleaseAt:   OptionalTime(a.ReleaseAt),
		ActsUntil:   OptionalTime(a.ActsUntil(time.Now())),
		Created:     strfmt.DateTime(a.Created),
		Changed:     strfmt.DateTime(a.Changed),
		Verified:    OptionalTime(a.Verified),
		LastUsed:    OptionalTime(a.LastUsed),
		Lost:        a.Lost,
		LastError:   a.LastError,
		Range:       string(a.Range),
	}
	if n := len(a.Invocations); n > 0 {
		out.Interface = a.Invocations[n-1].IfName
	}
	for _, addr := range a.Result.Addresses {
		out.Addresses = append(out.Addresses, addressModel(addr))
	}
	for _, f := range a.Claims {
		out.Claims = append(out.Claims, string(f))
	}
	for _, ip := range a.GivenUp {
		out.GivenUp = append(out.GivenUp, ip.String())
	}
	if e := a.Expiration; e != nil {
		out.Expiration = &models.AttachmentExpiration{UUID: e.UUID, Deadline: strfmt.DateTime(e.Deadline)}
	}
	return out
}

func addressModel(a call.Address) *models.AttachmentAddress {
	return &models.AttachmentAddress{
		Family:  string(attachment.FamilyOf(a.Addr())),
		IP:      a.Addr().String(),
		Prefix:  a.Prefix.String(),
		Gateway: formatAddr(a.Gateway),
	}
}

// OptionalTime returns nil, which is left out of the response, for the zero time.
func OptionalTime(t time.Time) *strfmt.DateTime {
	if t.IsZero() {
		return nil
	}
	out := strfmt.DateTime(t)
	return &out
}
