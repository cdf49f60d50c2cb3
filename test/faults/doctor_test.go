package faults

import (
	"encoding/json"
	"net/netip"
	"slices"
)

// doctorFindsWhatIsEmpty runs the real `doctor`: of the files that a killed
// host-local left without an ID it must name every one, and no other. Where no
// plugin was killed and none is there it is not asked.
func (s *scene) doctorFindsWhatIsEmpty() {
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
		s.t.Fatalf("doctor ended with status %d and printed %q, to stderr %q: %v", o.ExitCode, o.Stdout, o.Stderr, err)
	}
	var got []netip.Addr
	for _, f := range found {
		if f.Check == "empty-files" && f.State != "ok" {
			got = append(got, f.Address)
		}
	}
	slices.SortFunc(got, netip.Addr.Compare)
	slices.SortFunc(want, netip.Addr.Compare)
	if !slices.Equal(got, want) {
		s.t.Errorf("doctor names the empty files of %v; there are those of %v", got, want)
	}
	if len(want) > 0 && o.ExitCode != 1 && o.ExitCode != 3 {
		s.t.Errorf("doctor has found empty files and ended with status %d; want 1 or 3", o.ExitCode)
	}
}
