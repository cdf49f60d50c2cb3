package harness

import (
	"bytes"
	"sync"
)

// output collects what a process writes while the test reads it.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write appends p.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

// String returns everything written so far.
func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}
