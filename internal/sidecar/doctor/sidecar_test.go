package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"testing"

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
