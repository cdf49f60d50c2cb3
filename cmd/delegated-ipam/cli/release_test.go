package cli

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// Attachments of the tests of `release --all`.
const (
	heldBoth  = `{"owner":"router","pool":"default","container-id":"r","state":"held","claims":["ipv4","ipv6"],"addresses":[{"family":"ipv4","ip":"10.0.0.1"},{"family":"ipv6","ip":"fd00::1"}]}`
	heldOne   = `{"owner":"health","pool":"blue","container-id":"h","state":"held","claims":["ipv6"],"given-up":["10.0.0.7"],"addresses":[{"family":"ipv4","ip":"10.0.0.2"},{"family":"ipv6","ip":"fd00::2"}]}`
	releasing = `{"owner":"ingress","pool":"default","container-id":"i","state":"releasing","claims":[],"last-error":"the plugin\nfailed","addresses":[{"family":"ipv4","ip":"10.0.0.3"},{"family":"ipv6","ip":"fd00::3"}]}`
	cooldown  = `{"owner":"pod","pool":"default","container-id":"p","state":"cooldown","claims":[],"addresses":[{"family":"ipv4","ip":"10.0.0.4"}]}`
	adding    = `{"owner":"new","pool":"default","container-id":"n","state":"adding","claims":[],"addresses":[]}`
)

// allRead is the status of a daemon with a record in quarantine.
const allRead = `{"delegated-ipam":{"ready":true,"quarantined":[{"file":"x","reason":"damaged"}]}}`

func lists(bodies ...string) []response {
	var out []response
	for _, b := range bodies {
		out = append(out, jsonResponse(200, "["+b+"]"))
	}
	return out
}

func TestReleaseAll(t *testing.T) {
	yes := []response{{code: 200}}
	s := startDaemon(t, map[string][]response{
		"GET /v1/ipam": lists(
			heldBoth+","+heldOne+","+releasing+","+cooldown+","+adding,
			releasing+","+cooldown+","+adding,
			cooldown,
			""),
		"GET /v1/healthz":          {jsonResponse(200, allRead)},
		"DELETE /v1/ipam/10.0.0.1": yes, "DELETE /v1/ipam/fd00::1": yes, "DELETE /v1/ipam/fd00::2": yes, "DELETE /v1/ipam/10.0.0.7": yes, "DELETE /v1/ipam/10.0.0.3": yes, "DELETE /v1/ipam/10.0.0.4": yes,
	})
	s.dependencies().exec(t, "release", "--all", "--yes").wants(t, cmdline.ExitOK,
		"released 10.0.0.1 of pool default\nreleased fd00::1 of pool default\nreleased fd00::2 of pool blue\nreleased 10.0.0.7 of pool blue\nreleased 10.0.0.3 of pool default\nreleased 10.0.0.4 of pool default\n")
	want := []string{
		"GET /v1/ipam",
		"DELETE /v1/ipam/10.0.0.1?owner=router&pool=default skip-release-delay=true", "DELETE /v1/ipam/fd00::1?owner=router&pool=default skip-release-delay=true",
		"DELETE /v1/ipam/fd00::2?owner=health&pool=blue skip-release-delay=true", "DELETE /v1/ipam/10.0.0.7?owner=health&pool=blue skip-release-delay=true", "DELETE /v1/ipam/10.0.0.3?owner=ingress&pool=default skip-release-delay=true",
		"DELETE /v1/ipam/10.0.0.4?owner=pod&pool=default skip-release-delay=true",
		"GET /v1/healthz", "GET /v1/ipam", "GET /v1/ipam", "GET /v1/ipam",
	}
	s.wantRequests(t, want...)
}

func TestReleaseOwner(t *testing.T) {
	const status = `{"delegated-ipam":{"options":[{"name":"ipam-default-ip-pool","value":"blue","source":"flag"}]}}`
	for name, tt := range map[string]struct {
		args   []string
		code   int
		stdout string
		words  []string
		asked  []string
	}{
		"both families": {
			[]string{"router", "--pool=green"},
			cmdline.ExitOK, "released 10.0.0.1 of pool green\nreleased fd00::1 of pool green\n", nil,
			[]string{"GET /v1/ipam", "DELETE /v1/ipam/10.0.0.1?owner=router&pool=green", "DELETE /v1/ipam/fd00::1?owner=router&pool=green"},
		},
		"default pool, one is refused": {
			[]string{"health", "-o=json"},
			cmdline.ExitFailed, "[\n  {\n    \"ip\": \"10.0.0.7\",\n    \"pool\": \"default\"\n  }\n]\n",
			[]string{"release health: fd00::2: the DEL failed"},
			[]string{"GET /v1/healthz", "GET /v1/ipam", "DELETE /v1/ipam/fd00::2?owner=health&pool=blue", "DELETE /v1/ipam/10.0.0.7?owner=health&pool=blue"},
		},
		"nothing":          {[]string{"pod", "--pool=green"}, cmdline.ExitFailed, "", []string{`release pod: not found: owner "pod" has no address in pool "green"`}, []string{"GET /v1/ipam"}},
		"in cooldown":      {[]string{"pod", "--pool=green", "--skip-release-delay"}, cmdline.ExitOK, "released 10.0.0.4 of pool green\n", nil, []string{"GET /v1/ipam", "DELETE /v1/ipam/10.0.0.4?owner=pod&pool=green skip-release-delay=true"}},
		"released already": {[]string{"gone", "--pool=green"}, cmdline.ExitFailed, "", []string{"not found"}, []string{"GET /v1/ipam", "DELETE /v1/ipam/10.0.0.9?owner=gone&pool=green"}},
	} {
		t.Run(name, func(t *testing.T) {
			yes := []response{{code: 200}}
			s := startDaemon(t, map[string][]response{
				"GET /v1/ipam": lists(strings.ReplaceAll(heldBoth+","+cooldown, "default", "green") + "," + heldOne +
					`,{"owner":"gone","pool":"green","state":"held","claims":["ipv4"],"addresses":[{"family":"ipv4","ip":"10.0.0.9"}]}`),
				"GET /v1/healthz":          {jsonResponse(200, status)},
				"DELETE /v1/ipam/10.0.0.1": yes, "DELETE /v1/ipam/fd00::1": yes, "DELETE /v1/ipam/10.0.0.7": yes, "DELETE /v1/ipam/10.0.0.4": yes,
				"DELETE /v1/ipam/fd00::2": {jsonResponse(500, `"the DEL failed"`)}, "DELETE /v1/ipam/10.0.0.9": {jsonResponse(404, `"none"`)},
			})
			s.dependencies().exec(t, append([]string{"release"}, tt.args...)...).wants(t, tt.code, tt.stdout, tt.words...)
			s.wantRequests(t, tt.asked...)
		})
	}
}

func TestReleaseAllResults(t *testing.T) {
	read := jsonResponse(200, allRead)
	for name, tt := range map[string]struct {
		list   []response
		status response
		args   []string
		code   int
		stdout string
		words  []string
	}{
		"some remain": {
			lists(heldBoth + "," + releasing), read,
			[]string{"-o=json", "--timeout=0s"},
			cmdline.ExitFailed,
			"[\n  {\n    \"ip\": \"10.0.0.1\",\n    \"pool\": \"default\"\n  }\n]\n",
			[]string{
				"release fd00::1 of pool default: DEL failed\n", "release 10.0.0.3 of pool default: DEL failed, too\n",
				"2 attachments remain:\n  router of pool default (held, container ID r)\n" +
					"  ingress of pool default (releasing, container ID i): the plugin failed\n", "journal delete OWNER --yes",
			},
		},
		"empty":        {lists(""), read, []string{"-o=json"}, cmdline.ExitOK, "[]\n", nil},
		"already gone": {lists(cooldown, ""), read, nil, cmdline.ExitOK, "released 10.0.0.4 of pool default\n", nil},
		// Nothing of these waits for a DEL of a runtime.
		"kept for ended pods": {
			lists(`{"owner":"cni/a/eth0","pool":"default","container-id":"cilium-agent-warm-1-0123456789abcdef","state":"cooldown","claims":[],"addresses":[{"family":"ipv4","ip":"10.0.0.4"}]},`+
				`{"owner":"warm/2","pool":"default","container-id":"cilium-agent-warm-2-0123456789abcdef","state":"releasing","claims":[],"addresses":[]}`, ""),
			read, nil, cmdline.ExitOK, "released 10.0.0.4 of pool default\n", nil,
		},
		"daemon fails": {append(lists(adding), response{code: 500}), read, nil, cmdline.ExitFailed, "", []string{"release --all: ", "500"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := startDaemon(t, map[string][]response{
				"GET /v1/ipam": tt.list, "GET /v1/healthz": {tt.status},
				"DELETE /v1/ipam/10.0.0.1": {{code: 200}}, "DELETE /v1/ipam/fd00::1": {jsonResponse(500, `"DEL failed"`)},
				"DELETE /v1/ipam/10.0.0.3": {jsonResponse(500, `"DEL failed, too"`)}, "DELETE /v1/ipam/10.0.0.4": {{code: 404}},
			})
			s.dependencies().exec(t, append([]string{"release", "--all", "--yes"}, tt.args...)...).wants(t, tt.code, tt.stdout, tt.words...)
		})
	}
}

func TestReleaseAllProgress(t *testing.T) {
	s := startDaemon(t, map[string][]response{
		"GET /v1/ipam":             lists(cooldown, cooldown+","+adding+","+releasing, cooldown+","+adding, cooldown+","+adding, cooldown, cooldown, ""),
		"GET /v1/healthz":          {jsonResponse(200, allRead)},
		"DELETE /v1/ipam/10.0.0.4": {{code: 200}},
	})
	// Two lists without a change take less than the timeout, all of them together much more.
	d := advancing(s.dependencies(), 2*time.Second)
	d.exec(t, "release", "--all", "--yes", "--timeout=5s").wants(t, cmdline.ExitOK, "released 10.0.0.4 of pool default\n")
}

func TestReleaseAllInterrupted(t *testing.T) {
	s := startDaemon(t, map[string][]response{"GET /v1/ipam": lists(adding)})
	ctx, cancel := context.WithCancel(t.Context())
	d, calls := s.dependencies(), 0
	d.pollInterval = time.Hour
	d.now = func() time.Time {
		// The last call before it waits.
		if calls++; calls == 3 {
			cancel()
		}
		return noon()
	}
	d.execContext(ctx, "release", "--all", "--yes").wants(t, cmdline.ExitFailed, "", "release --all: interrupted", "delegated-ipam list")
}

func TestReleaseAllHangingPlugin(t *testing.T) {
	s := startDaemon(t, map[string][]response{
		"GET /v1/ipam":             lists(heldBoth + "," + releasing + "," + cooldown),
		"GET /v1/healthz":          {jsonResponse(200, allRead)},
		"DELETE /v1/ipam/10.0.0.1": {jsonResponse(500, `"it did not end"`)},
		"DELETE /v1/ipam/fd00::1":  {jsonResponse(500, `"it did not end"`)},
	})
	o := advancing(s.dependencies(), 35*time.Second).exec(t, "release", "--all", "--yes")
	o.wants(t, cmdline.ExitFailed, "", "2 of 4 addresses were not requested, because nothing was released for 1m45s\n", "3 attachments remain")
}

// advancing returns the dependencies of a test whose clock advances by a step at each call.
func advancing(d dependencies, step time.Duration) dependencies {
	clock := noon()
	d.now = func() time.Time {
		clock = clock.Add(step)
		return clock
	}
	return d
}

func TestReleaseAllWaits(t *testing.T) {
	s := startDaemon(t, map[string][]response{
		"GET /v1/ipam":             {{code: http.StatusServiceUnavailable}, {code: http.StatusServiceUnavailable}, jsonResponse(200, "["+cooldown+"]"), {code: 500}, jsonResponse(200, "[]")},
		"GET /v1/healthz":          {jsonResponse(200, allRead)},
		"DELETE /v1/ipam/10.0.0.4": {{code: 200}},
	})
	advancing(s.dependencies(), time.Second).exec(t, "release", "--all", "--yes", "--wait=1m").wants(t, cmdline.ExitOK,
		"released 10.0.0.4 of pool default\n", "waiting for the daemon, at most 1m", "503")
}

func TestReleaseAllWaitsNoLonger(t *testing.T) {
	s := startDaemon(t, map[string][]response{"GET /v1/ipam": {{code: http.StatusServiceUnavailable}}})
	o := advancing(s.dependencies(), time.Second).exec(t, "release", "--all", "--yes", "--wait=10s", "--state-dir="+t.TempDir())
	o.wants(t, cmdline.ExitFailed, "", "waiting for the daemon, at most 10s", "release --all: ", "503")
	if got := len(s.log); got < 2 || got > 10 {
		t.Errorf("%d requests; want several within 10s", got)
	}
}

func TestReleaseAllWithoutDaemon(t *testing.T) {
	dir := t.TempDir()
	stale := filepath.Join(dir, "stale")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale, Net: "unix"})
	check.Must(t, err)
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	file := filepath.Join(dir, "file")
	put(t, file, "")
	for name, socket := range map[string]string{"no socket": filepath.Join(dir, "none"), "stale socket": stale, "not a socket": file} {
		t.Run(name, func(t *testing.T) {
			d, state := advancing(testDependencies(nil), time.Second), t.TempDir()
			release := []string{"release", "--all", "--yes", "--wait=3s", "--state-dir=" + state, "-H=" + socket}
			d.exec(t, release...).wants(t, cmdline.ExitOK, "", "no process listens on "+socket, state+" has no record")
			writeJournal(t, state, heldRecord("router"), tombstone("ingress", time.Hour))
			d.exec(t, release...).wants(t, cmdline.ExitFailed, "", "no process listens on "+socket, state+" is in use", "1 attachments", "router", "start the daemon")
			d.exec(t, "release", "--all", "--yes", "--wait=3s", "-H="+socket).wants(t, cmdline.ExitFailed, "", "no daemon can be reached")
		})
	}
}

// An ADD with an unknown outcome may act for minutes, and its last DEL follows only then.
func TestReleaseAllSettles(t *testing.T) {
	until := noon().Add(4 * time.Minute).UTC().Format(time.RFC3339)
	settling := strings.Replace(adding, `{`, `{"acts-until":"`+until+`",`, 1)
	run := func(args ...string) outcome {
		s := startDaemon(t, map[string][]response{
			"GET /v1/ipam":    lists(append(slices.Repeat([]string{settling}, 9), "")...),
			"GET /v1/healthz": {jsonResponse(200, allRead)},
		})
		return advancing(s.dependencies(), 10*time.Second).exec(t, append([]string{"release", "--all", "--yes", "--timeout=20s"}, args...)...)
	}
	run().wants(t, cmdline.ExitFailed, "", "1 attachments remain", "until "+until+" an ADD with an unknown outcome may act", "repeat the command then")
	run("--wait=1m").wants(t, cmdline.ExitFailed, "", "until "+until)
	run("--wait=10m").wants(t, cmdline.ExitOK, "")
}
