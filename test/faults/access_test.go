package faults

import (
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/failpoint"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

const (
	foreignUID   = 70001
	otherUID     = 70002
	foreignGroup = 70003
)

type accessCase struct {
	flags   []string
	user    harness.User
	allowed bool
	// health is the response to a request for health; empty for one with all details.
	health string
}

//evidence:operate/security the API without being a caller, or with a peer unknown to the kernel
func TestAccess(t *testing.T) {
	foreign := harness.User{UID: foreignUID, GID: foreignUID, Groups: []uint32{foreignGroup}}
	hidden := []string{"--health-details=authorized"}
	eachCase(t, accessControl, map[string]accessCase{
		"root":                                  {allowed: true, flags: hidden},
		"foreign user":                          {user: foreign},
		"foreign user, details for the allowed": {user: foreign, flags: hidden, health: "{\"cilium\":{\"state\":\"Ok\"}}\n"},
		"foreign user in root's group":          {user: harness.User{UID: foreignUID, GID: 0}},
		"allowed user":                          {flags: []string{"--allow-uids=1,70001"}, user: foreign, allowed: true},
		"member of an allowed group":            {flags: []string{"--allow-gids=70003"}, user: foreign, allowed: true},
		"primary group allowed":                 {flags: []string{"--allow-gids=70001"}, user: foreign, allowed: true},
		"UID equals the allowed group":          {flags: []string{"--allow-gids=70002", "--allow-uids=70003"}, user: foreign},
		"socket group only":                     {flags: []string{"--socket-group=70003"}, user: foreign},
	}, func(t *testing.T, _ *stats, c accessCase) {
		needRoot(t)
		n := nodeWith(t)
		check.Must(t, os.Chmod(n.Dir, 0o711)) // search permission for the socket
		s := n.Start(t, append(c.flags, "--socket-mode=0666")...)
		held := s.AllocateFor(t, "router")
		before := n.Snapshot(t)

		for _, request := range [][2]string{
			{http.MethodGet, "/v1/ipam"},
			{http.MethodPost, "/v1/ipam?owner=thief"},
			{http.MethodPost, "/v1/ipam/" + held[0] + "?owner=router"},
			{http.MethodDelete, "/v1/ipam/" + held[0]},
			{"post", "/v1/ipam?owner=thief"},
			{http.MethodGet, "/v1/healthz/../ipam"},
		} {
			a := s.DoAs(t, c.user, request[0], request[1])
			if refused := a.Status == http.StatusForbidden; refused == c.allowed || refused && !strings.Contains(string(a.Body), "--allow-uids") {
				t.Errorf("%s was answered %s; want it allowed: %t", request, a, c.allowed)
			}
		}
		if !c.allowed {
			before.WantSame(t, n.Snapshot(t))
			wantHeld(t, s, "router", held)
		}
		// This is the last request: it may start a write to the state directory.
		a := s.DoAs(t, c.user, http.MethodGet, "/v1/healthz")
		if body := string(a.Body); a.Status != http.StatusOK || c.health != "" && body != c.health || c.health == "" && !strings.Contains(body, n.ConfDir) {
			t.Errorf("GET /v1/healthz was answered %s; want 200 and %q, or all details", a, c.health)
		}
	})
}

func TestSocketDirWarning(t *testing.T) {
	oneCase(t, accessControl)
	n := nodeWith(t)
	check.Must(t, os.Chmod(n.Dir, 0o777))
	n.Start(t).WaitLog(t, "directory "+n.Dir+" is world-writable")
}

func TestNoNetworkSockets(t *testing.T) {
	oneCase(t, accessControl)
	s := nodeWith(t).Start(t)
	s.AllocateFor(t, "router")
	for _, protocol := range []string{"tcp", "tcp6", "udp", "udp6", "raw", "raw6"} {
		if found := sockets(t, s, protocol); len(found) > 0 {
			t.Errorf("the daemon has the %s sockets %q", protocol, found)
		}
	}
	if len(sockets(t, s, "unix")) == 0 {
		t.Error("the search does not find the unix socket")
	}
}

// The client of an attachment without an owner cannot repeat its request.
func TestAnonymousOwnerAfterCrash(t *testing.T) {
	t.Parallel()
	f := newFixture(t, scenario{})
	f.start()
	f.setPlan(failpoint.Plan{Point: failpoint.ResponseDue, Visit: 1})
	if a, err := f.daemon.Try(http.MethodPost, "/v1/ipam"); err == nil {
		t.Fatalf("got the response %s; want the daemon killed before it", a)
	}
	f.daemon.Wait(t)
	f.clearPlan()
	f.start()
	if n := len(f.node.Leases(t)); n != 2 {
		t.Fatalf("the plugin has %d leases; want one of each family", n)
	}
	out := f.node.Command(t, "gc", "--owner=anonymous/*", "--older-than=1ns", "--yes")
	if left := f.node.Leases(t); out.ExitCode != 0 || len(left) > 0 {
		t.Errorf("gc ended with %d and left %v: %s", out.ExitCode, left, out.Stderr)
	}
}

// acceptedOwners returns valid owners with special meaning in paths, shells, logs or CNI_ARGS.
func acceptedOwners(n *harness.Node) []string {
	return []string{
		".", "..", "/", "../../" + n.Name, "../../../" + n.Name, "/etc/" + n.Name, "state/journal.db",
		"router/../health", "..\\..\\" + n.Name,
		"a;IP=10.15.0.99", ";IP=10.15.0.99;", "K8S_POD_NAME=x", "=", ";", "a=b;c=d",
		"kube-system/a;IP=10.15.0.99", "kube-system;IP=10.15.0.99/a", "kube-system/a=b", "a/b/c", "/b", "a/",
		`" level=error msg="forged`, "level=error", `{"level":"error"}`, `\n`, `\u0000`, "%0a", "%s%n", "$(id)", "`id`", "-rf", "--help",
		"\u2028", "\u202e", "\ufeff", "ümlaut", "日本", strings.Repeat("x", 512), strings.Repeat("/", 512), strings.Repeat("ü", 256),
	}
}

// rejectedOwners returns invalid owners, encoded for the query: control characters, invalid UTF-8 and
// long ones, of which the server does not read the last two.
func rejectedOwners() []string {
	return []string{
		"a%0Aforged", "a%0Dforged", "a%1B[31m", "a%00b", "a%C2%85b", "a%7F", "a%FFb", "a%C3", "a%ED%A0%80",
		strings.Repeat("x", 513), strings.Repeat("x", 10<<10), strings.Repeat("x", 10<<20),
	}
}

var (
	containerIDPattern = regexp.MustCompile(`^cilium-agent-[a-z0-9-]{1,50}$`)
	podNamePattern     = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`)
	// textLine matches a line of logrus' text format: unquoted words or quoted texts.
	textLine = regexp.MustCompile(`^time="[^"]+" level=[a-z]+ msg=("(?:[^"\\]|\\.)*"|\S+)(?: [A-Za-z0-9-]+=(?:"(?:[^"\\]|\\.)*"|[^\s"=]*))*$`)
	// repeatedField matches the number of requests that a line stands for, in both formats.
	repeatedField = regexp.MustCompile(`[ ,"]repeated"?[=:](\d+)`)
)

//evidence:operate/security an owner such as `../../x`, with line ends, quotes or `;`
func TestHostileOwners(t *testing.T) {
	// These types get no pod, a generated pod and the owner as the pod in CNI_ARGS.
	eachCase(t, accessControl, map[string]string{
		"calico-ipam": "text", "whereabouts": "json", "azure-ipam": "text",
	}, func(t *testing.T, _ *stats, format string) {
		n := harness.NewNode(t)
		plugin := n.InstallServer(t, filepath.Base(t.Name()), nil)
		n.Flags = append(n.Flags, "--accept-unsafe-plugin", "--log-format="+format)
		s := n.Start(t)
		s.AllocateFor(t, "first") // creates the files that every daemon has
		before := filesBelow(t, n)
		allocated := map[string]string{"first": s.AllocateFor(t, "first")[0]}
		for _, owner := range acceptedOwners(n) {
			allocated[owner] = s.AllocateFor(t, owner)[0]
		}
		for _, query := range rejectedOwners() {
			wantRejected(t, s, query)
		}

		created := slices.DeleteFunc(filesBelow(t, n), func(name string) bool { return slices.Contains(before, name) })
		if len(created) > 0 {
			t.Errorf("the owners created the files %q", created)
		}
		if outside, _ := filepath.Glob(filepath.Join(filepath.Dir(n.Dir), "*"+n.Name+"*")); len(outside) != 1 {
			t.Errorf("an owner created one of %q", outside)
		}
		for _, call := range plugin.Calls(t) {
			wantCleanEnvironment(t, call)
		}
		s.Stop(t)
		wantCleanLog(t, s, format, len(allocated)+1+2*(len(rejectedOwners())-2))

		s = n.Start(t)
		listed, ids := map[string]string{}, map[string]bool{}
		for _, a := range s.List(t) {
			listed[a.Owner], ids[a.ContainerID] = a.Addresses[0].IP.String(), true
		}
		if !maps.Equal(listed, allocated) || len(ids) != len(allocated) {
			t.Errorf("after the restart the owners have %q and %d container IDs; want %q", listed, len(ids), allocated)
		}
		if a := s.TryRestore(t, allocated[".."], "."); a.Status == http.StatusOK {
			t.Errorf("the owner . got the address of the owner ..: %s", a)
		}
		for _, ip := range allocated {
			s.Release(t, ip)
		}
		if held := plugin.Holds(t); len(held) != 0 {
			t.Errorf("after the releases the plugin holds %q", held)
		}
	})
}

// wantRejected sends an owner that must be rejected.
func wantRejected(t *testing.T, s *harness.Daemon, query string) {
	t.Helper()
	const headerLimit = 8 << 10 // docs/operate/security.md
	for _, path := range []string{"/v1/ipam?owner=", "/v1/ipam/10.15.0.77?owner="} {
		a, err := s.Try(http.MethodPost, path+query)
		if err != nil && len(query) > headerLimit {
			continue // the server closes the connection during the request
		}
		if err != nil || a.Status < 400 || a.Status >= 500 {
			t.Errorf("an owner of %d bytes was answered %s, %v; want a client error", len(query), a, err)
		}
	}
}

// wantCleanEnvironment wants a plugin call to have the expected variables and keys of CNI_ARGS
// only, once each, and with well-formed values.
func wantCleanEnvironment(t *testing.T, call harness.PluginCall) {
	t.Helper()
	expected := []string{"CNI_COMMAND", "CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_ARGS", "CNI_PATH", "PATH", "GOMAXPROCS"}
	for name := range call.Env {
		if !slices.Contains(expected, name) {
			t.Errorf("%s has the variable %q", call.Verb, name)
		}
	}
	if call.Verb == "VERSION" || call.Verb == "STATUS" {
		return
	}
	if id := call.Env["CNI_CONTAINERID"]; !containerIDPattern.MatchString(id) {
		t.Errorf("%s has the container ID %q", call.Verb, id)
	}
	seen := map[string]bool{}
	for pair := range strings.SplitSeq(call.Env["CNI_ARGS"], ";") {
		key, value, _ := strings.Cut(pair, "=")
		podField := strings.HasPrefix(key, "K8S_POD_") && podNamePattern.MatchString(value)
		if seen[key] || !podField && pair != "IgnoreUnknown=1" {
			t.Errorf("%s has %q in CNI_ARGS %q", call.Verb, pair, call.Env["CNI_ARGS"])
		}
		seen[key] = true
	}
}

// wantCleanLog wants well-formed lines, of which one is about each request for addresses.
func wantCleanLog(t *testing.T, s *harness.Daemon, format string, want int) {
	t.Helper()
	control := func(r rune) bool { return r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 }
	requests := 0
	for line := range strings.Lines(s.Log()) {
		line = strings.TrimSuffix(line, "\n")
		var entry struct{ Msg, Level string }
		if format == "text" {
			if m := textLine.FindStringSubmatch(line); m != nil && !strings.ContainsFunc(line, control) {
				entry.Msg = strings.Trim(m[1], `"`)
			}
		} else if err := json.Unmarshal([]byte(line), &entry); err != nil || entry.Level == "" {
			entry.Msg = ""
		}
		if entry.Msg == "" {
			t.Errorf("malformed log line: %q", line)
		}
		if strings.HasPrefix(entry.Msg, "Request ") && strings.Contains(line, "POST /v1/ipam") {
			requests++
			if m := repeatedField.FindStringSubmatch(line); m != nil { // refusals of one kind
				n, err := strconv.Atoi(m[1])
				check.Must(t, err)
				requests += n - 1
			}
		}
	}
	if requests != want {
		t.Errorf("the log has %d requests; want %d:\n%s", requests, want, s.Log())
	}
}

// filesBelow returns the paths in a node's directory, except the paths of the scripted plugin.
func filesBelow(t *testing.T, n *harness.Node) []string {
	t.Helper()
	var all []string
	check.Must(t, filepath.WalkDir(n.Dir, func(path string, _ os.DirEntry, err error) error {
		if name := strings.TrimPrefix(path, n.Dir+"/"); !strings.HasPrefix(name, "bin/") {
			all = append(all, name)
		}
		return err
	}))
	return all
}
