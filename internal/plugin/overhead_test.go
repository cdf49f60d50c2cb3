package plugin

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// BenchmarkCallOverhead measures the cost of a call without the plugin: the CPU time of this process,
// not of the plugins.
func BenchmarkCallOverhead(b *testing.B) {
	r, c := newIdlePlugin(b)
	first := c
	first.PrevResult = nil
	for _, of := range []struct {
		name string
		run  func(context.Context, call.Call) error
		call call.Call
	}{
		{"CHECK", r.Check, c},
		{"DEL", r.Del, c},
		{"DEL before a first ADD", r.Del, first},
	} {
		b.Run(of.name, func(b *testing.B) {
			b.ReportAllocs()
			before := cpuTime(b)
			for b.Loop() {
				if err := of.run(b.Context(), of.call); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N)/1e3, "cpu-µs/op")
		})
	}
}

// newIdlePlugin returns a runner, and a call of a plugin of 132 bytes that only exits.
func newIdlePlugin(b *testing.B) (*Runner, call.Call) {
	b.Helper()
	if runtime.GOARCH != "amd64" {
		b.Skip("the plugin is machine code for amd64")
	}
	dir := b.TempDir()
	binary := filepath.Join(dir, "host-local")
	if err := os.WriteFile(binary, []byte(exitBinary), 0o755); err != nil {
		b.Fatal(err)
	}
	r, err := New(Options{BinDirs: []string{dir}, LockFile: filepath.Join(dir, "calls.lock"), IfName: "eth0", Timeout: time.Minute, Profiles: profile.Load})
	if err != nil {
		b.Fatal(err)
	}
	state, err := fileState(binary)
	if err != nil {
		b.Fatal(err)
	}
	// It has no VERSION.
	r.versions.Store(state, []string{"1.0.0", "1.1.0"})
	n := networkOf("net",
		`{"type":"cilium-cni","ipam":{"type":"host-local","dataDir":"/var/lib/cni/networks","ranges":[[{"subnet":"10.1.0.0/24"}],[{"subnet":"fd00::/120"}]]}}`)
	c, err := r.NewInvocation(b.Context(), n, "cilium-agent-health-0123456789abcdef", "health")
	if err != nil {
		b.Fatal(err)
	}
	c.PrevResult = json.RawMessage(dualResult)
	return r, call.Call{Invocation: c, Owner: "health", Pool: "default"}
}

// dualResult is an ADD result of host-local.
const dualResult = `{"cniVersion":"1.1.0","ips":[{"address":"10.1.0.9/24","gateway":"10.1.0.1"},{"address":"fd00::9/120","gateway":"fd00::1"}]}`

// exitBinary is the smallest ELF binary that calls exit(0).
const exitBinary = "\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00" +
	"\x02\x00\x3e\x00\x01\x00\x00\x00\x78\x00\x40\x00\x00\x00\x00\x00" +
	"\x40\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00" +
	"\x00\x00\x00\x00\x40\x00\x38\x00\x01\x00\x00\x00\x00\x00\x00\x00" +
	"\x01\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00" +
	"\x00\x00\x40\x00\x00\x00\x00\x00\x00\x00\x40\x00\x00\x00\x00\x00" +
	"\x84\x00\x00\x00\x00\x00\x00\x00\x84\x00\x00\x00\x00\x00\x00\x00" +
	"\x00\x10\x00\x00\x00\x00\x00\x00" +
	"\xb8\x3c\x00\x00\x00\x31\xff\x0f\x05\x90\x90\x90"

// cpuTime returns the CPU time of this process in nanoseconds.
func cpuTime(b *testing.B) int64 {
	b.Helper()
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return used.Utime.Nano() + used.Stime.Nano()
}
