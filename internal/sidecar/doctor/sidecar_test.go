package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/go-openapi/strfmt"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/unixsock"
)

func TestSidecar(t *testing.T) {
	found := func(o Observations) []Finding { return run(&o, "sidecar") }
	ready := &models.DelegatedIPAMStatus{Ready: true}
	runCases(t, map[string]testCase{
		"ready":                {found(Observations{Status: ready}), states(ok), []string{"the sidecar responds"}},
		"no response":          {found(Observations{StatusErr: errors.New("refused")}), states(failed), []string{"refused", "start the sidecar"}},
		"not ready":            {found(Observations{Status: &models.DelegatedIPAMStatus{Reasons: []string{"one", "two"}}}), states(failed, failed), []string{"the sidecar is not ready: one", "the sidecar is not ready: two"}},
		"not ready, no reason": {found(Observations{Status: &models.DelegatedIPAMStatus{}}), states(failed), []string{"no reason"}},
		"no list":              {found(Observations{Status: ready, ListErr: errors.New("403")}), states(ok, failed), []string{"403", "docs/operate/security.md"}},
	})
}

func TestOptions(t *testing.T) {
	found := func(o Options) []Finding { return run(&Observations{Options: o}, "options") }
	runCases(t, map[string]testCase{
		"doctor's own":     {found(Options{}), states(ok), []string{"serve would have here"}},
		"the sidecar's":    {found(Options{FromSidecar: true}), states(ok), []string{"running sidecar"}},
		"invalid":          {found(Options{Invalid: []error{errors.New("--owners is wrong")}}), states(failed), []string{"--owners is wrong", "does not start"}},
		"unusable":         {found(Options{Invalid: []error{errors.New("a"), errors.New("b")}}), states(failed, failed), []string{"were skipped"}},
		"unknown variable": {found(Options{Unknown: []string{"DELEGATED_IPAM_OWNER"}}), states(warning), []string{"DELEGATED_IPAM_OWNER"}},
		"skipped file":     {found(Options{Skipped: []string{"/etc/x/owners~"}}), states(warning), []string{"/etc/x/owners~", "no effect", "remove it"}},
		"differing": {
			found(Options{Differing: []string{"--owners is another"}}), states(warning), []string{"--owners is another", "restart"},
		},
	})
}

func TestEnvironment(t *testing.T) {
	uid := os.Geteuid()
	found := func(pid, uid int, otherMounts bool) []Finding {
		return run(&Observations{Config: &sidecar.Config{}, peer: &unixsock.Peer{PID: pid, UID: uid}, otherMounts: otherMounts}, "environment")
	}
	runCases(t, map[string]testCase{
		"no sidecar":           {run(&Observations{Config: &sidecar.Config{}}, "environment"), states(ok), []string{"unknown"}},
		"same user and mounts": {found(4711, uid, false), states(ok), []string{"4711", strconv.Itoa(uid)}},
		"other user":           {found(4711, uid+1, false), states(warning), []string{fmt.Sprintf("user %d", uid), fmt.Sprintf("run doctor as user %d", uid+1)}},
		"other mounts":         {found(4711, uid, true), states(warning), []string{"another container"}},
		"other PID namespace":  {found(0, uid, false), states(warning), []string{"another container"}},
		"no usable options":    {run(&Observations{}, "environment"), nil, nil},
	})
}

func TestMachineID(t *testing.T) {
	found := func(id string) []Finding {
		return run(&Observations{Config: &sidecar.Config{}, machineID: id}, "machine-id")
	}
	runCases(t, map[string]testCase{
		"present": {found("x"), states(ok), nil},
		"missing": {found(""), states(warning), []string{"/etc/machine-id"}},
	})
}

func TestSocket(t *testing.T) {
	found := func(change func(*socket), mode ...fs.FileMode) []Finding {
		c := sidecar.Config{Sidecar: options.Sidecar{SocketPath: "/run/ipam.sock", SocketMode: 0o660, AllowUIDs: []int{7}, AllowGIDs: []int{8}}}
		for _, m := range mode {
			c.SocketMode = m
		}
		s := socket{exists: true, mode: fs.ModeSocket | 0o660, gid: 9}
		change(&s)
		return reported(func(r *report) { s.check(c, r) })
	}
	runCases(t, map[string]testCase{
		"private": {found(func(*socket) {}), states(ok), []string{"0660", "group 9", "user 7", "group 8", "root"}},
		"missing": {found(func(s *socket) { s.exists, s.mode = false, 0 }), states(ok), []string{"gets mode 0660"}},
		"world-writable": {
			found(func(s *socket) { s.mode = fs.ModeSocket | 0o666 }), states(warning), []string{"0666", "--socket-mode=0660"},
		},
		"world-writable option": {
			found(func(s *socket) { s.exists = false }, 0o777), states(warning), []string{"0777"},
		},
		"not a socket": {found(func(s *socket) { s.mode = 0o660 }), states(failed), []string{"not a socket"}},
		"unknown group": {
			found(func(s *socket) { s.invalid = errors.New("group nix") }), states(failed), []string{"group nix", "--socket-group"},
		},
		"group without a right": {
			found(func(s *socket) { s.group = errors.New("not a member") }), states(failed), []string{"not a member", "make the sidecar's process a member"},
		},
		"world-writable directory": {
			found(func(s *socket) { s.exposed = errors.New("exposed") }), states(warning), []string{"exposed"},
		},
	})
}

func TestAttachments(t *testing.T) {
	noon := strfmt.DateTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	later := strfmt.DateTime(time.Time(noon).Add(time.Hour))
	if got, want := lastVerified([]*models.Attachment{{State: "held", Verified: &later}, {State: "held", Verified: &noon}, {State: "held", Verified: &later}}),
		"3 held ones were verified, none before 2026-03-01T12:00:00Z"; got != want {
		t.Errorf("lastVerified is %q; want %q", got, want)
	}
	found := func(a models.Attachment, quarantined ...*models.QuarantinedRecord) []Finding {
		return run(&Observations{Status: &models.DelegatedIPAMStatus{Quarantined: quarantined}, After: []*models.Attachment{&a}}, "attachments")
	}
	runCases(t, map[string]testCase{
		"held":                  {found(models.Attachment{State: "held"}), states(ok), []string{"none of 1 attachments", "1 of 1 held ones were not verified"}},
		"held and verified":     {found(models.Attachment{State: "held", Verified: &noon}), states(ok), []string{"none before 2026-03-01T12:00:00Z"}},
		"cooldown":              {found(models.Attachment{State: "cooldown"}), states(ok), []string{"none is held"}},
		"held, after a failure": {found(models.Attachment{State: "held", LastError: "once"}), states(ok), nil},
		"lost":                  {found(models.Attachment{State: "held", Lost: true, Owner: "router"}), states(failed), []string{`the addresses of owner "router"`, "allocate"}},
		"outside the ranges": {
			found(models.Attachment{State: "held", Range: "outside", Owner: "router", Addresses: []*models.AttachmentAddress{{IP: "10.0.0.1"}, {IP: "fd00::1"}}}),
			states(failed),
			[]string{`owner "router" has 10.0.0.1 and fd00::1 outside the ranges`, "restart the owner"},
		},
		"slot of the bridge, outside the ranges": {
			found(models.Attachment{State: "held", Range: "outside", Owner: "ciliumnode-3"}), states(failed), []string{"recreate the pods", "the bridge releases"},
		},
		"no configuration": {found(models.Attachment{State: "held", Range: "unconfigured"}), states(ok), nil},
		"failed DEL":       {found(models.Attachment{State: "releasing", LastError: "no daemon", Owner: "x"}), states(warning), []string{"no daemon", `"x"`}},
		"failed ADD":       {found(models.Attachment{State: "adding", LastError: "full"}), states(warning), []string{"full"}},
		"DEL in progress":  {found(models.Attachment{State: "releasing"}), states(ok), nil},
		"quarantined record": {
			found(models.Attachment{}, &models.QuarantinedRecord{File: "quarantine/x", Reason: "cut off"}), states(warning), []string{"quarantine/x", "cut off"},
		},
	})
	t.Run("no list", func(t *testing.T) {
		o := &Observations{Status: &models.DelegatedIPAMStatus{}, ListErr: errors.New("403")}
		if got := run(o, "attachments"); len(got) != 0 {
			t.Errorf("found %+v; want nothing", got)
		}
	})
}

func TestHeldPlugins(t *testing.T) {
	of := func(p ...*models.MovedPlugin) []Finding {
		return run(&Observations{Status: &models.DelegatedIPAMStatus{MovedPlugins: p}}, "held-plugins")
	}
	moved := &models.MovedPlugin{Pool: "default", Plugin: "host-local", Binary: "/old/host-local", Executable: "/opt/cni/bin/host-local"}
	gone := &models.MovedPlugin{Pool: "blue", Plugin: "static", Binary: "/old/static", Error: "/old/static does not exist any more"}
	runCases(t, map[string]testCase{
		"all exist":         {of(), states(ok), []string{"all recorded attachments"}},
		"moved":             {of(moved), states(ok), []string{"/old/host-local", "/opt/cni/bin/host-local"}},
		"missing":           {of(gone), states(failed), []string{"/old/static", "--cni-bin-dir"}},
		"moved and missing": {of(moved, gone), states(ok, failed), nil},
	})
}

func newStatus(by, reason string) *models.PoolStatus {
	return &models.PoolStatus{
		Pool: "default", ProfileFacts: map[string]any{"lookup": "host-local-leases"},
		Verification: &models.PoolVerification{By: by, Reason: reason},
	}
}

func TestVerification(t *testing.T) {
	none := newStatus("check", "")
	none.ProfileFacts = map[string]any{"lookup": "none"}
	of := func(p ...*models.PoolStatus) []Finding {
		return run(&Observations{Status: &models.DelegatedIPAMStatus{Pools: p}}, "verification")
	}
	runCases(t, map[string]testCase{
		"lookup":               {of(newStatus("lookup", "")), states(ok), []string{"held attachments are verified by lookup"}},
		"lookup is not proven": {of(newStatus("lookup", "no ADD yet")), states(ok), []string{"no ADD yet"}},
		"lookup is off":        {of(newStatus("check", "ADD returned 10.0.0.5")), states(warning), []string{"ADD returned 10.0.0.5", "dataDir"}},
		"no lookup":            {of(none), states(ok), []string{"by check"}},
		"two pools":            {of(newStatus("nothing", "off"), newStatus("lookup", "")), states(warning, ok), nil},
		"unknown plugin":       {of(&models.PoolStatus{Pool: "default"}), nil, nil},
		"older sidecar":        {of(), nil, nil},
	})
}
