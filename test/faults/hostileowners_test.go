package faults

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// takenOwners are owners that mean something to a file system, a shell, a log or
// CNI_ARGS, and are as good as any other.
func takenOwners(n *harness.Node) []string {
	return []string{
		".", "..", "/", "../../" + n.Name, "../../../" + n.Name, "/etc/" + n.Name, "state/attachments/x.json",
		"router/../health", "..\\..\\" + n.Name,
		"a;IP=10.15.0.99", ";IP=10.15.0.99;", "K8S_POD_NAME=x", "=", ";", "a=b;c=d",
		"kube-system/a;IP=10.15.0.99", "kube-system;IP=10.15.0.99/a", "kube-system/a=b", "a/b/c", "/b", "a/",
		`" level=error msg="forged`, "level=error", `{"level":"error"}`, `\n`, `\u0000`, "%0a", "%s%n", "$(id)", "`id`", "-rf", "--help",
		"\u2028", "\u202e", "\ufeff", "ümlaut", "日本", strings.Repeat("x", 512), strings.Repeat("/", 512), strings.Repeat("ü", 256),
	}
}

// refusedOwners are as they stand in the query.
func refusedOwners() map[string]string {
	return map[string]string{
		"a newline":            "a%0Aforged",
		"a carriage return":    "a%0Dforged",
		"an escape character":  "a%1B[31m",
		"NUL":                  "a%00b",
		"a C1 control":         "a%C2%85b",
		"a delete character":   "a%7F",
		"no UTF-8":             "a%FFb",
		"half a character":     "a%C3",
		"a surrogate in UTF-8": "a%ED%A0%80",
		"513 bytes":            strings.Repeat("x", 513),
		"10 KB":                strings.Repeat("x", 10<<10),
		"10 MB":                strings.Repeat("x", 10<<20),
	}
}

// hostileNode has the scripted plugin of a type, and enough addresses.
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

func TestNoOwnerLeavesTheStateFolderOrTheCNIEnvironment(t *testing.T) {
	t.Parallel()
	count := newTally(t, whoMayCall)
	// One for each way in which a pod's name goes into CNI_ARGS: none, one that is
	// made up, and the owner's own.
	for _, pluginType := range []string{"calico-ipam", "whereabouts", "azure-ipam"} {
		t.Run(pluginType, func(t *testing.T) {
			t.Parallel()
			count.watch(t)
			n, plugin := hostileNode(t, pluginType)
			s := n.Start(t)
			s.AllocateFor(t, "first") // what is made once is there now
			before := filesBelow(t, n)
			owners := takenOwners(n)
			for _, owner := range owners {
				s.AllocateFor(t, owner)
			}
			for _, query := range refusedOwners() {
				wantNotServed(t, s, query)
			}

			records := 0
			for _, name := range filesBelow(t, n) {
				switch {
				case slices.Contains(before, name):
				case ourFile.MatchString(name):
					records++
				default:
					t.Errorf("an owner made %q appear", name)
				}
			}
			if records != len(owners) {
				t.Errorf("there are %d records; want one for each of %d owners", records, len(owners))
			}
			if outside, _ := filepath.Glob(filepath.Join(filepath.Dir(n.Dir), "*"+n.Name+"*")); len(outside) != 1 {
				t.Errorf("beside the node's folder there is %q", outside)
			}
			for _, call := range plugin.Calls(t) {
				wantCleanEnvironment(t, call)
			}
			for _, a := range s.List(t) {
				s.Release(t, a.Addresses[0].IP.String())
			}
			if held := plugin.Holds(t); len(held) != 0 {
				t.Errorf("after every release the plugin holds %q", held)
			}
		})
	}
}

// headerLimit is how much of a request's header the server reads (docs/security.md).
const headerLimit = 64 << 10

// wantNotServed sends an owner that no operation takes.
func wantNotServed(t *testing.T, s *harness.Sidecar, query string) {
	t.Helper()
	for _, path := range []string{"/v1/ipam?owner=", "/v1/ipam/10.15.0.77?owner="} {
		a, err := s.Try(http.MethodPost, path+query)
		if err != nil && len(query) > headerLimit {
			continue // the server has closed the connection before we had written all
		}
		if err != nil || a.Status < 400 || a.Status >= 500 {
			t.Errorf("an owner of %d bytes is answered %s, %v; want a refusal", len(query), a, err)
		}
	}
}

var (
	ourContainerID = regexp.MustCompile(`^cilium-agent-[a-z0-9-]{1,50}$`)
	aPodsName      = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`)
)

// wantCleanEnvironment judges what the plugin was told: each variable and each
// key of CNI_ARGS that there is to be, once, with a value of its own kind.
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
	if id := call.Env["CNI_CONTAINERID"]; !ourContainerID.MatchString(id) {
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
		case strings.HasPrefix(key, "K8S_POD_") && aPodsName.MatchString(value):
		default:
			t.Errorf("%s has %q in CNI_ARGS %q", call.Verb, pair, call.Env["CNI_ARGS"])
		}
	}
}

func TestEachRequestIsOneLineOfTheLogWhateverItsOwner(t *testing.T) {
	t.Parallel()
	count := newTally(t, whoMayCall)
	for format, read := range map[string]func(*testing.T, string) string{"text": readText, "json": readJSON} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			count.watch(t)
			n, _ := hostileNode(t, "calico-ipam")
			s := n.Start(t, "--log-format="+format)
			refused := 0
			for _, owner := range takenOwners(n) {
				s.AllocateFor(t, owner)
			}
			for _, query := range refusedOwners() {
				if len(query) <= 512 { // longer ones are not read to their end
					refused++
					s.Do(t, http.MethodPost, "/v1/ipam?owner="+query)
				}
			}
			s.Stop(t)

			requests := 0
			for line := range strings.Lines(s.Log()) {
				if strings.HasPrefix(read(t, strings.TrimSuffix(line, "\n")), "request ") && strings.Contains(line, "/v1/ipam") {
					requests++
				}
			}
			if want := len(takenOwners(n)) + refused; requests != want {
				t.Errorf("the log has %d lines of requests; want %d, one for each:\n%s", requests, want, s.Log())
			}
		})
	}
}

// textLine is a line of logrus' text format: words or quoted texts, and no
// character that a terminal or a reader of lines would take for something else.
var textLine = regexp.MustCompile(`^time="[^"]+" level=[a-z]+ msg=("(?:[^"\\]|\\.)*"|\S+)(?: [A-Za-z0-9-]+=(?:"(?:[^"\\]|\\.)*"|[^\s"=]*))*$`)

// readText returns the message of a line.
func readText(t *testing.T, line string) string {
	t.Helper()
	m := textLine.FindStringSubmatch(line)
	if m == nil || strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 }) {
		t.Errorf("not one line of the log: %q", line)
		return ""
	}
	return strings.Trim(m[1], `"`)
}

func readJSON(t *testing.T, line string) string {
	t.Helper()
	var said struct{ Msg, Level, Time string }
	if err := json.Unmarshal([]byte(line), &said); err != nil || said.Msg == "" || said.Level == "" {
		t.Errorf("not one line of the log: %q: %v", line, err)
	}
	return said.Msg
}

func TestAnOwnerComesBackAsItWasGiven(t *testing.T) {
	t.Parallel()
	newTally(t, whoMayCall).watch(t)
	n, _ := hostileNode(t, "calico-ipam")
	s := n.Start(t)
	got := map[string]string{}
	for _, owner := range takenOwners(n) {
		got[owner] = s.Allocate(t, harness.Request{Owner: owner}).Address.IPv4
	}
	s.Stop(t)
	s = n.Start(t)
	ids := map[string]string{}
	for _, a := range s.List(t) {
		if other, taken := ids[a.ContainerID]; taken {
			t.Errorf("%q and %q have one container ID", a.Owner, other)
		}
		ids[a.ContainerID] = a.Owner
		if ip := a.Addresses[0].IP.String(); got[a.Owner] != ip {
			t.Errorf("%q has %s after the restart; want %q", a.Owner, ip, got[a.Owner])
		}
	}
	if len(ids) != len(got) {
		t.Errorf("the list has %d owners; want %d", len(ids), len(got))
	}
	if a := s.Do(t, http.MethodPost, fmt.Sprintf("/v1/ipam/%s?owner=%s", got[".."], url.QueryEscape("."))); a.Status == http.StatusOK {
		t.Errorf("the owner . got the address of the owner ..: %s", a)
	}
}
