package faults

import (
	"encoding/json"
	"net/netip"
	"slices"
)

// checkStaleLeaseFiles checks that `doctor` finds exactly the files that a killed
// host-local left without a container ID. It does nothing if no plugin was killed and
// there are none.
func (s *scene) checkStaleLeaseFiles() {
	s.t.Helper()
	want := s.seen(nil).Unborn
	if !s.forgiving && len(want) == 0 {
		return
	}
	o := s.node.Command(s.t, "doctor", "-o", "json")
	var found []struct {
		Check, State string
		Address      netip.Addr
	}
	if err := json.Unmarshal([]byte(o.Stdout), &found); err != nil {
		s.t.Fatalf("doctor: exit status %d, stdout %q, stderr %q: %v", o.ExitCode, o.Stdout, o.Stderr, err)
	}
	var got []netip.Addr
	for _, f := range found {
		if f.Check == "stale-lease-files" && f.State != "ok" {
			got = append(got, f.Address)
		}
	}
	slices.SortFunc(got, netip.Addr.Compare)
	slices.SortFunc(want, netip.Addr.Compare)
	if !slices.Equal(got, want) {
		s.t.Errorf("doctor found the stale files of %v; want %v", got, want)
	}
	if len(want) > 0 && o.ExitCode != 1 && o.ExitCode != 3 {
		s.t.Errorf("doctor found stale files: exit status %d; want 1 or 3", o.ExitCode)
	}
}
