package process

import (
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// Trap: on a machine that stops for longer than outputDelay the read begins after the deadline, and the
// result of a successful ADD was lost.
func TestOutputAfterDeadline(t *testing.T) {
	o := output{limit: 100}
	check.Must(t, o.open())
	defer o.write.Close() // a descendant has the pipe, too
	_, err := o.write.WriteString("result")
	check.Must(t, err)
	check.Must(t, o.pipe.SetReadDeadline(time.Now().Add(-time.Second)))
	o.read()
	if string(o.bytes) != "result" {
		t.Errorf("read %q; want the result", o.bytes)
	}
}
