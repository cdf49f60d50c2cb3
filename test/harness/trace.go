package harness

import (
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/strace"
)

// WholeTrace returns the trace of a sidecar when strace has written its end.
func WholeTrace(t testing.TB, file string, pid int) string {
	t.Helper()
	var trace string
	Eventually(t, "strace to write the end of the sidecar", func() error {
		data, err := os.ReadFile(file)
		trace = string(data)
		ends := func(s strace.Step) bool { return s.PID == pid && s.Call == strace.Exited }
		if err == nil && !slices.ContainsFunc(strace.Parse(trace), ends) {
			err = errors.New("it is not there")
		}
		return err
	})
	return trace
}
