package plugin

import (
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestRealHostLocalVerbs(t *testing.T) {
	for name, c := range map[string]struct {
		plugins, version string
		status           bool
	}{
		"newest": {"", "1.1.0", true},
		"v1.9.1": {harness.PluginsV19, "1.1.0", true},
		"v1.4.0": {harness.PluginsV14, "1.0.0", false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newRealOf(t, c.plugins, dualStack)
			target := f.call("id")
			if got := target.Invocation; got.CNIVersion != c.version || got.HasStatus() != c.status || !got.HasCheck() {
				t.Errorf("got CNI version %s with STATUS %v and CHECK %v, want %s with %v and true",
					got.CNIVersion, got.HasStatus(), got.HasCheck(), c.version, c.status)
			}
			got := f.wantAdd(target, firstIPs)
			if want := `{"cniVersion":"` + c.version + `",`; !strings.HasPrefix(string(got.Raw), want) {
				t.Errorf("got the raw result %s, want it to begin %s", got.Raw, want)
			}
			wantError(t, f.run(call.VerbAdd, target), call.Refused, "duplicate allocation is not allowed")
			target.PrevResult = []byte(goodResult) // of CNI 1.1.0, also for the old one
			f.must(target, call.VerbCheck, call.VerbStatus, call.VerbDel, call.VerbDel)
			f.wantLeases()
			err := f.run(call.VerbCheck, target)
			if wantError(t, err, call.Refused, "Failed to find address"); !call.IsLost(target.Invocation, err) {
				t.Errorf("got not lost after a DEL: %v", err)
			}
		})
	}
}

// Trap: host-local, killed between creating an address file and writing it. DEL does not free the address;
// from v1.10.0 on a GC does, with all that it does not list. The GC of v1.9.1, of the same CNI versions,
// frees nothing.
func TestRealHostLocalEmptyLease(t *testing.T) {
	ours := call.Attachment{ContainerID: "id", IfName: "eth0"}
	for name, c := range map[string]struct {
		plugins string
		valid   []call.Attachment
		kept    []string
		lost    bool
	}{
		"newest, listed":     {"", []call.Attachment{ours}, []string{"10.1.0.3", "fd00::2"}, false},
		"newest, not listed": {"", nil, nil, true},
		"v1.9.1, not listed": {harness.PluginsV19, nil, []string{"10.1.0.2", "10.1.0.3", "fd00::2"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newRealOf(t, c.plugins, dualStack)
			target := f.call("id")
			f.writeLease("10.1.0.2", "")
			f.wantAdd(target, "10.1.0.3/24 via 10.1.0.1, fd00::2/120 via fd00::1")
			f.gc(target, c.valid...)
			f.wantLeases(c.kept...)
			if err := f.run(call.VerbCheck, target); call.IsLost(target.Invocation, err) != c.lost {
				t.Errorf("CHECK returned %v; want lost %v", err, c.lost)
			}
			f.writeLease("10.1.0.2", "")
			f.must(target, call.VerbDel)
			f.wantLeases("10.1.0.2")
		})
	}
}
