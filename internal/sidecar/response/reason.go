package response

import (
	"fmt"
	"strings"
)

// ReasonHeader is the header with the reason of a response that has no body in Cilium's contract
// (swagger.yaml).
const ReasonHeader = "Delegated-Ipam-Reason"

// maxReason is the maximum length of ReasonHeader in bytes. cilium-agent logs it as one line.
const maxReason = 1024

// cut ends a reason that was shortened.
const cut = "..."

// Reason returns text as a value of ReasonHeader: printable ASCII, at most 1024 bytes. Each run of
// white space becomes one space, and any other character is escaped as in a Go string, such as
// \x1b or \u00e9.
func Reason(text string) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
	var out strings.Builder
	for _, r := range text {
		part := string(r)
		switch {
		case ' ' <= r && r <= '~':
		case r <= 0x7f:
			part = fmt.Sprintf(`\x%02x`, r)
		case r <= 0xffff:
			part = fmt.Sprintf(`\u%04x`, r)
		default:
			part = fmt.Sprintf(`\U%08x`, r)
		}
		if out.Len()+len(part) > maxReason-len(cut) {
			return out.String() + cut
		}
		out.WriteString(part)
	}
	return out.String()
}
