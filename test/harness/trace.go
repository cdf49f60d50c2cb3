package harness

import (
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/strace"
)

// ReadTrace waits until strace has written the exit of the sidecar, and returns the trace.
func ReadTrace(t testing.TB, file string, pid int) string {
	t.Helper()
	var trace string
	Eventually(t, "strace to write the exit of the sidecar", func() error {
		data, err := os.ReadFile(file)
		trace = string(data)
		ends := func(s strace.Step) bool { return s.PID == pid && s.Call == strace.Exited }
		if err == nil && !slices.ContainsFunc(strace.Parse(trace), ends) {
			err = errors.New("the exit is missing")
		}
		return err
	})
	return trace
}
