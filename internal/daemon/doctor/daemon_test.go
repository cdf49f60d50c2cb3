package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/unixsock"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

func TestDaemon(t *testing.T) {
	found := func(o Observations) []Finding { return run(&o, "daemon") }
	ready := &models.DelegatedIPAMStatus{Ready: true}
	runCases(t, map[string]testCase{
		"ready":       {found(Observations{Status: ready}), states(ok), []string{"the daemon responds"}},
		"no response": {found(Observations{StatusErr: errors.New("refused")}), states(failed), []string{"refused", "start the daemon"}},
		"not ready":   {found(Observations{Status: &models.DelegatedIPAMStatus{Reasons: []string{"one", "two"}}}), states(failed, failed), []string{"the daemon is not ready: one", "the daemon is not ready: two"}},
		"no list":     {found(Observations{Status: ready, ListErr: errors.New("403")}), states(ok, failed), []string{"403", "docs/operate/security.md"}},
	})
}

func TestOptions(t *testing.T) {
	found := func(o Options) []Finding { return run(&Observations{Options: o}, "options") }
	runCases(t, map[string]testCase{
		"doctor's own":     {found(Options{}), states(ok), []string{"serve would have here"}},
		"the daemon's":     {found(Options{FromDaemon: true}), states(ok), []string{"running daemon"}},
		"invalid":          {found(Options{Invalid: errors.New("--owners is wrong")}), states(failed), []string{"--owners is wrong", "does not start"}},
		"unusable":         {found(Options{Invalid: errors.New("a\nb")}), states(failed, failed), []string{"were skipped"}},
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
		return run(&Observations{Config: &daemon.Config{}, peer: &unixsock.Peer{PID: pid, UID: uid}, otherMounts: otherMounts}, "environment")
	}
	runCases(t, map[string]testCase{
		"no daemon":            {run(&Observations{Config: &daemon.Config{}}, "environment"), states(ok), []string{"unknown"}},
		"same user and mounts": {found(4711, uid, false), states(ok), []string{"4711", strconv.Itoa(uid)}},
		"other user":           {found(4711, uid+1, false), states(warning), []string{fmt.Sprintf("user %d", uid), fmt.Sprintf("run doctor as user %d", uid+1)}},
		"other mounts":         {found(4711, uid, true), states(warning), []string{"another container"}},
		"other PID namespace":  {found(0, uid, false), states(warning), []string{"another container"}},
		"no usable options":    {run(&Observations{}, "environment"), nil, nil},
	})
}

func TestSocket(t *testing.T) {
	found := func(mode, directory fs.FileMode, exists bool) []Finding {
		dir := t.TempDir()
		check.Must(t, os.Chmod(dir, directory))
		c := daemon.Config{Daemon: options.Daemon{SocketPath: filepath.Join(dir, "ipam.sock"), SocketMode: mode}}
		if exists {
			c.SocketMode = 0o660
			check.Must(t, os.WriteFile(c.SocketPath, nil, 0o600))
			check.Must(t, os.Chmod(c.SocketPath, mode))
		}
		return run(&Observations{Config: &c}, "socket")
	}
	runCases(t, map[string]testCase{
		"private":                  {found(0o660, 0o700, true), states(ok), []string{"0660"}},
		"missing":                  {found(0o600, 0o700, false), states(ok), []string{"0600"}},
		"world-writable":           {found(0o666, 0o700, true), states(warning), []string{"0666", "--socket-mode=0660"}},
		"world-writable option":    {found(0o777, 0o700, false), states(warning), []string{"0777"}},
		"world-writable directory": {found(0o660, 0o777, true), states(warning), []string{"chmod go-w"}},
	})
}

func TestAttachments(t *testing.T) {
	found := func(a models.Attachment, quarantined ...*models.QuarantinedRecord) []Finding {
		return run(&Observations{Status: &models.DelegatedIPAMStatus{Quarantined: quarantined}, After: []*models.Attachment{&a}}, "attachments")
	}
	runCases(t, map[string]testCase{
		"held":                  {found(models.Attachment{State: "held"}), states(ok), []string{"none of 1 attachments"}},
		"cooldown":              {found(models.Attachment{State: "cooldown"}), states(ok), nil},
		"held, after a failure": {found(models.Attachment{State: "held", LastError: "once"}), states(ok), nil},
		"lost":                  {found(models.Attachment{State: "held", Lost: true, Owner: "router"}), states(failed), []string{`the addresses of owner "router"`, "allocate"}},
		"lost by a pod":         {found(models.Attachment{State: "held", Lost: true, Owner: "cni/one/eth0"}), states(failed), []string{`the addresses of owner "cni/one/eth0"`, "recreate the pod"}},
		"outside the ranges": {
			found(models.Attachment{State: "held", Range: "outside", Owner: "router", Addresses: []*models.AttachmentAddress{{IP: "10.0.0.1"}, {IP: "fd00::1"}}}),
			states(failed),
			[]string{`owner "router" has 10.0.0.1 and fd00::1 outside the ranges`, "restart the owner"},
		},
		"pod, outside the ranges": {
			found(models.Attachment{State: "held", Range: "outside", Owner: "cni/one/eth0"}), states(failed), []string{"recreate the pod"},
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
