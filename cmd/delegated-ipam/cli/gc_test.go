package cli

import (
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// Attachments for `gc`; the time of the tests is noon.
const (
	oldPod   = `{"owner":"default/old","pool":"default","container-id":"o","state":"held","claims":["ipv4"],"created":"2026-02-27T12:00:00.000Z","last-used":"2026-02-28T09:00:00.000Z","addresses":[{"family":"ipv4","ip":"10.0.0.1"}]}`
	youngPod = `{"owner":"default/young","pool":"default","container-id":"y","state":"held","claims":["ipv4"],"created":"2026-03-01T11:59:00.000Z","last-used":"2026-03-01T11:59:00.000Z","addresses":[{"family":"ipv4","ip":"10.0.0.2"}]}`
	running  = `{"owner":"cni/c1/eth0","pool":"default","container-id":"c1","state":"held","claims":["ipv4"],"created":"2026-03-01T11:59:00.000Z","addresses":[{"family":"ipv4","ip":"10.0.0.4"}]}`
	unknown  = `{"owner":"router","pool":"blue","container-id":"r","state":"held","claims":["ipv4"],"created":"2026-02-20T12:00:00.000Z","addresses":[{"family":"ipv4","ip":"10.0.0.3"}]}`
)

func TestGCList(t *testing.T) {
	for _, c := range []struct {
		name  string
		flags []string
		want  string
	}{
		{"no condition", nil, "router default/old default/young"},
		{"owner", []string{"--owner=default/*"}, "default/old default/young"},
		{"several owners", []string{"--owner=router,default/old"}, "router default/old"},
		{"pool", []string{"--pool=blue"}, "router"},
		{"age", []string{"--older-than=1h"}, "router default/old"},
		{"last use, unknown after a restart", []string{"--unused-for=1h"}, "default/old"},
		{"all conditions", []string{"--owner=default/*", "--older-than=240h"}, ""},
		{"every owner but containers", []string{"--owner=*"}, "router default/old default/young"},
		{"a container", []string{"--owner=cni/c1/*"}, "cni/c1/eth0"},
		{"every owner and another container", []string{"--owner=*,cni/c2/*"}, "router default/old default/young"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := startDaemon(t, map[string][]response{"GET /v1/ipam": lists(oldPod + "," + youngPod + "," + unknown + "," + running)})
			o := s.dependencies().exec(t, append([]string{"gc"}, c.flags...)...)
			o.wants(t, cmdline.ExitOK, o.stdout, "nothing was released")
			var owners []string
			for _, line := range strings.Split(strings.TrimSpace(o.stdout), "\n")[1:] {
				owners = append(owners, strings.Fields(line)[0])
			}
			if strings.Contains(c.want, "router") && !strings.Contains(o.stdout, "unknown") {
				t.Errorf("it printed no unknown last use\n%s", o.stdout)
			}
			check.Equal(t, "owners", strings.Join(owners, " "), c.want)
			s.wantRequests(t, "GET /v1/ipam")
		})
	}
}

// Without --older-than an attachment matches also if the clock was set back since it was created.
func TestGCClock(t *testing.T) {
	s := startDaemon(t, map[string][]response{"GET /v1/ipam": lists(strings.Replace(oldPod, "2026-02-27T12", "2026-03-01T13", 1))})
	if o := s.dependencies().exec(t, "gc", "--unused-for=1h"); !strings.Contains(o.stdout, "default/old") {
		t.Errorf("printed %s", o.stdout)
	}
}

func TestGCPool(t *testing.T) {
	for name, c := range map[string]struct {
		pool, want string
		code       int
	}{
		"configured, without attachments": {"blue", "0 attachments; nothing was released", cmdline.ExitOK},
		"the default one, by its name":    {"default", "0 attachments; nothing was released", cmdline.ExitOK},
		"unknown":                         {"bleu", `no pool "bleu": the daemon has the pools ["pods" "blue"], and no attachment is in another one`, cmdline.ExitFailed},
	} {
		t.Run(name, func(t *testing.T) {
			s := startDaemon(t, map[string][]response{
				"GET /v1/ipam": lists(""),
				"GET /v1/healthz": {jsonResponse(200, `{"delegated-ipam":{"pools":[{"pool":"pods"},{"pool":"blue"}],
					"options":[{"name":"ipam-default-ip-pool","value":"pods"}]}}`)},
			})
			o := s.dependencies().exec(t, "gc", "--pool", c.pool)
			o.wants(t, c.code, o.stdout, c.want)
		})
	}
}

func TestGCRelease(t *testing.T) {
	// One DEL releases all addresses of an attachment.
	const releasing = `{"owner":"failing","pool":"default","state":"releasing","claims":[],"created":"2026-02-20T12:00:00.000Z",` +
		`"addresses":[{"family":"ipv4","ip":"10.0.0.1"},{"family":"ipv6","ip":"fd00::1"}]}`
	const released = "released 10.0.0.1 of pool default\n"
	for name, tt := range map[string]struct {
		list, flag string
		del        response
		code       int
		stdout     string
		words      []string
	}{
		"condition": {oldPod + "," + youngPod + "," + unknown, "--unused-for=1h", response{code: 200}, cmdline.ExitOK, released, nil},
		"releasing": {releasing + "," + unknown, "--owner=failing", response{code: 200}, cmdline.ExitOK, released, nil},
		"DEL fails": {
			oldPod, "--older-than=1s", jsonResponse(500, `"DEL failed"`), cmdline.ExitFailed, "",
			[]string{"release 10.0.0.1 of pool default: DEL failed\n", "1 of 1 addresses were not released"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := startDaemon(t, map[string][]response{"GET /v1/ipam": lists(tt.list), "DELETE /v1/ipam/10.0.0.1": {tt.del}})
			s.dependencies().exec(t, "gc", tt.flag, "--yes").wants(t, tt.code, tt.stdout, tt.words...)
		})
	}
}
