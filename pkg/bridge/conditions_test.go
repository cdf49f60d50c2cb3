package bridge

import (
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/pkg/bridge/planner"
)

// The message covers published and unpublished addresses.
func TestDescribeNotHeld(t *testing.T) {
	text := describe(planner.AddressNotHeld, []string{"10.0.0.2"})
	for _, want := range []string{"Those in spec.ipam.pool stay there", "the others are not published"} {
		if !strings.Contains(text, want) {
			t.Errorf("the message is %q; want %q in it", text, want)
		}
	}
}
