package sidecar

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/go-openapi/runtime"
)

// maxReason bounds how much of an answer is taken for a reason, in bytes.
const maxReason = 64 << 10

// Refusal is an answer that says no.
type Refusal struct {
	Code int
	// Reason is the server's own; empty for a code without a body.
	Reason string
	// RetryAfter is after how many seconds to ask again; empty if not said.
	RetryAfter string
}

// newRefusal reads the reason: a JSON string (the contract's Error), an object
// with a message (what go-openapi answers by itself), or plain text.
func newRefusal(r runtime.ClientResponse) *Refusal {
	out := &Refusal{Code: r.Code(), RetryAfter: r.GetHeader("Retry-After")}
	// A reason that is cut off is better than none.
	body, _ := io.ReadAll(io.LimitReader(r.Body(), maxReason))
	var object struct{ Message string }
	if json.Unmarshal(body, &out.Reason) == nil {
		return out
	}
	if json.Unmarshal(body, &object) == nil && object.Message != "" {
		out.Reason = object.Message
		return out
	}
	out.Reason = strings.TrimSpace(string(body))
	return out
}

// Error is the server's reason, or the name of the code.
func (r *Refusal) Error() string {
	if r.Reason != "" {
		return r.Reason
	}
	return fmt.Sprintf("the sidecar answered %d %s without a reason", r.Code, http.StatusText(r.Code))
}
