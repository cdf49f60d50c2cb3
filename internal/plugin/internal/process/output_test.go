package process

import (
	"testing"
	"time"
)

// Trap: on a machine that stops for longer than outputDelay the read begins after the deadline, and the
// result of a successful ADD was lost.
func TestOutputAfterDeadline(t *testing.T) {
	o := output{limit: 100}
	if err := o.open(); err != nil {
		t.Fatal(err)
	}
	defer o.write.Close() // a descendant has the pipe, too
	if _, err := o.write.WriteString("result"); err != nil {
		t.Fatal(err)
	}
	if err := o.pipe.SetReadDeadline(time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	o.read()
	if string(o.bytes) != "result" {
		t.Errorf("read %q; want the result", o.bytes)
	}
}
