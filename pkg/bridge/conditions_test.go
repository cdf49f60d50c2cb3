package bridge

import (
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/pkg/bridge/planner"
)

// The message is true of a published address and of one that is not.
func TestDescribeNotHeld(t *testing.T) {
	text := describe(planner.AddressNotHeld, []string{"10.0.0.2"})
	for _, want := range []string{"One that is in spec.ipam.pool stays there", "one that is not is not published"} {
		if !strings.Contains(text, want) {
			t.Errorf("the message is %q; want %q in it", text, want)
		}
	}
}
