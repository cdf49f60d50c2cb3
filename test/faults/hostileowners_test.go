package faults

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// acceptedOwners returns valid owners with special meaning in paths, shells, logs or CNI_ARGS.
func acceptedOwners(n *harness.Node) []string {
	return []string{
		".", "..", "/", "../../" + n.Name, "../../../" + n.Name, "/etc/" + n.Name, "state/attachments/x.json",
		"router/../health", "..\\..\\" + n.Name,
		"a;IP=10.15.0.99", ";IP=10.15.0.99;", "K8S_POD_NAME=x", "=", ";", "a=b;c=d",
		"kube-system/a;IP=10.15.0.99", "kube-system;IP=10.15.0.99/a", "kube-system/a=b", "a/b/c", "/b", "a/",
		`" level=error msg="forged`, "level=error", `{"level":"error"}`, `\n`, `\u0000`, "%0a", "%s%n", "$(id)", "`id`", "-rf", "--help",
		"\u2028", "\u202e", "\ufeff", "ümlaut", "日本", strings.Repeat("x", 512), strings.Repeat("/", 512), strings.Repeat("ü", 256),
	}
}

// rejectedOwners returns invalid owners, encoded for the query.
func rejectedOwners() map[string]string {
	return map[string]string{
		"newline":            "a%0Aforged",
		"carriage return":    "a%0Dforged",
		"escape character":   "a%1B[31m",
		"NUL":                "a%00b",
		"C1 control":         "a%C2%85b",
		"delete character":   "a%7F",
		"not UTF-8":          "a%FFb",
		"truncated UTF-8":    "a%C3",
		"surrogate in UTF-8": "a%ED%A0%80",
		"513 bytes":          strings.Repeat("x", 513),
		"10 KB":              strings.Repeat("x", 10<<10),
		"10 MB":              strings.Repeat("x", 10<<20),
	}
}

// hostileNode returns a node with the scripted plugin of a type.
func hostileNode(t *testing.T, pluginType string) (*harness.Node, harness.Scripted) {
	t.Helper()
	n := harness.NewNode(t)
	plugin := n.InstallScripted(t, pluginType)
	n.WriteNetwork(t, "05-cilium", harness.Network{
		Name: "pods", CNIVersion: "1.0.0", Plugin: pluginType, IPAM: map[string]any{"subnet": "10.15.0.0/24"},
	})
	n.Flags = append(n.Flags, "--enable-ipv6=false", "--accept-unsafe-plugin")
	return n, plugin
}

func TestHostileOwners(t *testing.T) {
	t.Parallel()
	st := newStats(t, accessControl)
	// These types get no pod, a generated pod and the owner as the pod in CNI_ARGS.
	for _, pluginType := range []string{"calico-ipam", "whereabouts", "azure-ipam"} {
		t.Run(pluginType, func(t *testing.T) {
			t.Parallel()
			st.countCase(t)
			n, plugin := hostileNode(t, pluginType)
			s := n.Start(t)
			s.AllocateFor(t, "first") // creates the files that every sidecar has
			before := filesBelow(t, n)
			allocated := map[string]string{}
			for _, owner := range acceptedOwners(n) {
				allocated[owner] = s.AllocateFor(t, owner)[0]
			}
			for _, query := range rejectedOwners() {
				wantRejected(t, s, query)
			}

			records := 0
			for _, name := range filesBelow(t, n) {
				switch {
				case slices.Contains(before, name):
				case recordPath.MatchString(name):
					records++
				default:
					t.Errorf("an owner created %q", name)
				}
			}
			if records != len(allocated) {
				t.Errorf("there are %d records; want one for each of %d owners", records, len(allocated))
			}
			if outside, _ := filepath.Glob(filepath.Join(filepath.Dir(n.Dir), "*"+n.Name+"*")); len(outside) != 1 {
				t.Errorf("an owner created one of %q", outside)
			}
			for _, call := range plugin.Calls(t) {
				wantCleanEnvironment(t, call)
			}

			s.Stop(t)
			s = n.Start(t)
			wantSameOwners(t, s, allocated)
			if a := s.TryRestore(t, allocated[".."], "."); a.Status == http.StatusOK {
				t.Errorf("the owner . got the address of the owner ..: %s", a)
			}
			for _, a := range s.List(t) {
				s.Release(t, a.Addresses[0].IP.String())
			}
			if held := plugin.Holds(t); len(held) != 0 {
				t.Errorf("after the releases the plugin holds %q", held)
			}
		})
	}
}

// headerLimit is the limit of the server for a request's header (docs/operate/security.md).
const headerLimit = 8 << 10

// wantSameOwners wants the list to have the owners with their addresses and distinct container IDs,
// besides the owner "first".
func wantSameOwners(t *testing.T, s *harness.Sidecar, allocated map[string]string) {
	t.Helper()
	ownerOf := map[string]string{}
	for _, a := range s.List(t) {
		if other, taken := ownerOf[a.ContainerID]; taken {
			t.Errorf("%q and %q have one container ID", a.Owner, other)
		}
		ownerOf[a.ContainerID] = a.Owner
		if ip := a.Addresses[0].IP.String(); a.Owner != "first" && allocated[a.Owner] != ip {
			t.Errorf("%q has %s after the restart; want %q", a.Owner, ip, allocated[a.Owner])
		}
	}
	if len(ownerOf) != len(allocated)+1 {
		t.Errorf("the list has %d owners; want %d", len(ownerOf), len(allocated)+1)
	}
}

// wantRejected sends an owner that must be rejected.
func wantRejected(t *testing.T, s *harness.Sidecar, query string) {
	t.Helper()
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

var (
	containerIDPattern = regexp.MustCompile(`^cilium-agent-[a-z0-9-]{1,50}$`)
	podNamePattern     = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`)
)

// wantCleanEnvironment wants a plugin call to have the expected variables and keys of CNI_ARGS
// only, once each, and with well-formed values.
func wantCleanEnvironment(t *testing.T, call harness.PluginCall) {
	t.Helper()
	for name := range call.Env {
		switch name {
		case "CNI_COMMAND", "CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_ARGS", "CNI_PATH", "PATH", "GOMAXPROCS":
		default:
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
		if seen[key] {
			t.Errorf("%s has %s twice: %q", call.Verb, key, call.Env["CNI_ARGS"])
		}
		seen[key] = true
		switch {
		case key == "IgnoreUnknown" && value == "1":
		case strings.HasPrefix(key, "K8S_POD_") && podNamePattern.MatchString(value):
		default:
			t.Errorf("%s has %q in CNI_ARGS %q", call.Verb, pair, call.Env["CNI_ARGS"])
		}
	}
}

func TestHostileOwnersInLog(t *testing.T) {
	t.Parallel()
	st := newStats(t, accessControl)
	for format, read := range map[string]func(*testing.T, string) string{"text": readText, "json": readJSON} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			st.countCase(t)
			n, _ := hostileNode(t, "calico-ipam")
			s := n.Start(t, "--log-format="+format)
			rejected := 0
			for _, owner := range acceptedOwners(n) {
				s.AllocateFor(t, owner)
			}
			for _, query := range rejectedOwners() {
				if len(query) <= 512 { // the server does not read longer ones completely
					rejected++
					s.Do(t, http.MethodPost, "/v1/ipam?owner="+query)
				}
			}
			s.Stop(t)

			requests := 0
			for line := range strings.Lines(s.Log()) {
				if strings.HasPrefix(read(t, strings.TrimSuffix(line, "\n")), "Request ") && strings.Contains(line, "/v1/ipam") {
					requests++
				}
			}
			if want := len(acceptedOwners(n)) + rejected; requests != want {
				t.Errorf("the log has %d lines of requests; want %d, one for each:\n%s", requests, want, s.Log())
			}
		})
	}
}

// textLine matches a line of logrus' text format: unquoted words or quoted texts.
var textLine = regexp.MustCompile(`^time="[^"]+" level=[a-z]+ msg=("(?:[^"\\]|\\.)*"|\S+)(?: [A-Za-z0-9-]+=(?:"(?:[^"\\]|\\.)*"|[^\s"=]*))*$`)

// readText returns the message of a line, which must not have control characters.
func readText(t *testing.T, line string) string {
	t.Helper()
	m := textLine.FindStringSubmatch(line)
	if m == nil || strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 }) {
		t.Errorf("malformed log line: %q", line)
		return ""
	}
	return strings.Trim(m[1], `"`)
}

func readJSON(t *testing.T, line string) string {
	t.Helper()
	var entry struct{ Msg, Level, Time string }
	if err := json.Unmarshal([]byte(line), &entry); err != nil || entry.Msg == "" || entry.Level == "" {
		t.Errorf("malformed log line: %q: %v", line, err)
	}
	return entry.Msg
}

// recordPath matches the path of a record, the only file that an owner may create.
var recordPath = regexp.MustCompile(`^state/attachments/cilium-agent-[a-z0-9-]{1,50}\.json$`)

// filesBelow returns the paths in a node's directory, except the paths of the scripted plugin.
func filesBelow(t *testing.T, n *harness.Node) []string {
	t.Helper()
	var all []string
	harness.Must(t, filepath.WalkDir(n.Dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name, err := filepath.Rel(n.Dir, path); err == nil && !strings.HasPrefix(name, "bin/") {
			all = append(all, name)
		}
		return nil
	}))
	return all
}
