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

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

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
