package nodecheck

import (
	"errors"
	"io/fs"
	"testing"
	"time"

	"github.com/go-openapi/strfmt"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/doctor/check"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/unixsock"
	"github.com/delegated-ipam/delegated-ipam/test/checktest"
)

const ok, warning, failed = check.OK, check.Warning, check.Error

func states(all ...check.State) []check.State { return all }

// testCase has findings, their expected states, and texts that they contain.
type testCase struct {
	found    []check.Finding
	states   []check.State
	contains []string
}

func runCases(t *testing.T, cases map[string]testCase) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) { checktest.Want(t, c.found, c.states, c.contains...) })
	}
}

func TestSidecar(t *testing.T) {
	found := func(o check.Observations) []check.Finding { return Sidecar.Run(&o) }
	ready := &models.DelegatedIPAMStatus{Ready: true}
	runCases(t, map[string]testCase{
		"ready":                {found(check.Observations{Status: ready}), states(ok), []string{"the sidecar responds"}},
		"no response":          {found(check.Observations{StatusErr: errors.New("refused")}), states(failed), []string{"refused", "start the sidecar"}},
		"not ready":            {found(check.Observations{Status: &models.DelegatedIPAMStatus{Reasons: []string{"one", "two"}}}), states(failed, failed), []string{"the sidecar is not ready: one", "the sidecar is not ready: two"}},
		"not ready, no reason": {found(check.Observations{Status: &models.DelegatedIPAMStatus{}}), states(failed), []string{"no reason"}},
		"no list":              {found(check.Observations{Status: ready, ListErr: errors.New("403")}), states(ok, failed), []string{"403", "docs/operate/security.md"}},
	})
}

func TestOptions(t *testing.T) {
	found := func(o check.Options) []check.Finding { return Options.Run(&check.Observations{Options: o}) }
	runCases(t, map[string]testCase{
		"doctor's own":     {found(check.Options{}), states(ok), []string{"serve would have here"}},
		"the sidecar's":    {found(check.Options{FromSidecar: true}), states(ok), []string{"running sidecar"}},
		"invalid":          {found(check.Options{Invalid: []error{errors.New("--owners is wrong")}}), states(failed), []string{"--owners is wrong", "does not start"}},
		"unusable":         {found(check.Options{Invalid: []error{errors.New("a"), errors.New("b")}, Unusable: true}), states(failed, failed), []string{"were skipped"}},
		"unknown variable": {found(check.Options{Unknown: []string{"DELEGATED_IPAM_OWNER"}}), states(warning), []string{"DELEGATED_IPAM_OWNER"}},
		"skipped file":     {found(check.Options{Skipped: []string{"/etc/x/owners~"}}), states(warning), []string{"/etc/x/owners~", "no effect", "remove it"}},
		"differing": {
			found(check.Options{Differing: []check.Difference{{Option: "owners", Here: "a", HereFrom: "config-dir", There: "b", ThereFrom: "default"}}}),
			states(warning),
			[]string{"--owners", `"a" here (config-dir)`, `"b" (default)`, "restart"},
		},
	})
}

func TestEnvironment(t *testing.T) {
	peer := unixsock.Peer{PID: 4711, UID: 1000}
	found := func(e check.Environment) []check.Finding {
		return Environment.Run(&check.Observations{Config: &check.Config{}, Environment: e})
	}
	runCases(t, map[string]testCase{
		"no sidecar":           {found(check.Environment{UID: 1000}), states(ok), []string{"unknown"}},
		"same user and mounts": {found(check.Environment{Known: true, Peer: peer, UID: 1000}), states(ok), []string{"4711", "1000"}},
		"other user":           {found(check.Environment{Known: true, Peer: peer, UID: 0}), states(warning), []string{"user 1000", "user 0", "run doctor as user 1000"}},
		"other mounts":         {found(check.Environment{Known: true, Peer: peer, UID: 1000, OtherMounts: true}), states(warning), []string{"another container"}},
		"other PID namespace":  {found(check.Environment{Known: true, Peer: unixsock.Peer{UID: 1000}, UID: 1000}), states(warning), []string{"another container"}},
		"no usable options":    {Environment.Run(&check.Observations{}), nil, nil},
	})
}

func TestMachineID(t *testing.T) {
	runCases(t, map[string]testCase{
		"present": {machineID("x"), states(ok), nil},
		"missing": {machineID(""), states(warning), []string{"/etc/machine-id"}},
	})
}

func TestSocket(t *testing.T) {
	found := func(change func(*socket)) []check.Finding {
		s := socket{
			options: unixsock.Options{Path: "/run/ipam.sock", Mode: 0o660}, callers: unixsock.Callers{UIDs: []int{7}, GIDs: []int{8}},
			exists: true, mode: fs.ModeSocket | 0o660, gid: 9,
		}
		change(&s)
		return s.findings()
	}
	runCases(t, map[string]testCase{
		"private": {found(func(*socket) {}), states(ok), []string{"0660", "group 9", "user 7", "group 8", "root"}},
		"missing": {found(func(s *socket) { s.exists, s.mode = false, 0 }), states(ok), []string{"gets mode 0660"}},
		"world-writable": {
			found(func(s *socket) { s.mode = fs.ModeSocket | 0o666 }), states(warning), []string{"0666", "--socket-mode=0660"},
		},
		"world-writable option": {
			found(func(s *socket) { s.exists, s.options.Mode = false, 0o777 }), states(warning), []string{"0777"},
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
		"world-writable emptyDir": {
			found(func(s *socket) {
				s.exposed, s.directory.Root = errors.New("exposed"), "/var/lib/kubelet/pods/x/volumes/kubernetes.io~empty-dir/run"
			}), states(ok), nil,
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
	found := func(a models.Attachment, quarantined ...*models.QuarantinedRecord) []check.Finding {
		return Attachments.Run(&check.Observations{Status: &models.DelegatedIPAMStatus{Quarantined: quarantined}, After: []*models.Attachment{&a}})
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
		"excluded, outside the ranges": {found(models.Attachment{State: "held", Range: "outside", Excluded: true}), states(ok), nil},
		"no configuration":             {found(models.Attachment{State: "held", Range: "unconfigured"}), states(ok), nil},
		"failed DEL":                   {found(models.Attachment{State: "releasing", LastError: "no daemon", Owner: "x"}), states(warning), []string{"no daemon", `"x"`}},
		"failed ADD":                   {found(models.Attachment{State: "adding", LastError: "full"}), states(warning), []string{"full"}},
		"DEL in progress":              {found(models.Attachment{State: "releasing"}), states(ok), nil},
		"quarantined record": {
			found(models.Attachment{}, &models.QuarantinedRecord{File: "quarantine/x", Reason: "cut off"}), states(warning), []string{"quarantine/x", "cut off"},
		},
	})
	t.Run("no list", func(t *testing.T) {
		o := &check.Observations{Status: &models.DelegatedIPAMStatus{}, ListErr: errors.New("403")}
		if got := Attachments.Run(o); len(got) != 0 {
			t.Errorf("found %+v; want nothing", got)
		}
	})
}

func TestHeldPlugins(t *testing.T) {
	of := func(p ...*models.MovedPlugin) []check.Finding {
		return HeldPlugins.Run(&check.Observations{Status: &models.DelegatedIPAMStatus{MovedPlugins: p}})
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
