package journal

import (
	"fmt"
	"strings"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
)

// Describe returns owner, pool, state, container ID and addresses of a record.
func Describe(r attachment.Record) string {
	text := fmt.Sprintf("%s of pool %s (%s, container ID %s)", r.Owner, r.Pool, r.State, r.IDInUse())
	if addresses := Addresses(r); addresses != "" {
		text += ": " + addresses
	}
	return text
}

// Addresses returns the reserved addresses of a record, separated by commas.
func Addresses(r attachment.Record) string {
	var all []string
	for _, a := range r.Reserved() {
		all = append(all, a.String())
	}
	return strings.Join(all, ",")
}
