package process

import (
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// Trap: on a machine that stops for longer than outputDelay the read begins after the deadline, and the
// result of a successful ADD was lost.
func TestOutputAfterDeadline(t *testing.T) {
	o := output{limit: 100}
	harness.Must(t, o.open())
	defer o.write.Close() // a descendant has the pipe, too
	_, err := o.write.WriteString("result")
	harness.Must(t, err)
	harness.Must(t, o.pipe.SetReadDeadline(time.Now().Add(-time.Second)))
	o.read()
	if string(o.bytes) != "result" {
		t.Errorf("read %q; want the result", o.bytes)
	}
}
