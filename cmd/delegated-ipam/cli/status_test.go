package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
	"github.com/delegated-ipam/delegated-ipam/cmd/internal/output"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
)

func TestStatusPage(t *testing.T) {
	for name, tt := range map[string]struct {
		response, file string
		flags          []string
	}{
		"ready":          {"status-ready.json", "status-ready.txt", nil},
		"ready, verbose": {"status-ready.json", "status-verbose.txt", []string{"--verbose"}},
		"not ready":      {"status-not-ready.json", "status-not-ready.txt", nil},
		"just started":   {"status-new.json", "status-new.txt", nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := startDaemon(t, map[string][]response{"GET /v1/healthz": {jsonResponse(200, read(t, tt.response))}})
			o := s.dependencies().exec(t, append([]string{"status"}, tt.flags...)...)
			o.wants(t, cmdline.ExitOK, o.stdout)
			golden(t, tt.file, o.stdout)
		})
	}
}

// Nothing unusual is known without a pending container; a report of the runtime is shown.
func TestStatusEndedContainers(t *testing.T) {
	for name, tt := range map[string]struct{ ended, want string }{
		"nothing":      {`{"pending":0,"delay-seconds":600}`, "Last error: none\nCounters: nothing unusual"},
		"report":       {`{"pending":0,"runtime":"containerd v2.4.2","reported":"2026-03-01T11:59:30.000Z","sandboxes":12}`, "Ended containers: 0 pending\n Runtime: containerd v2.4.2, 12 sandboxes, reported 30s ago\nLast error: none\nCounters: nothing unusual"},
		"hidden":       {`{"pending":0,"delay-seconds":600,"hidden-directories":["/a","/b"]}`, "Ended containers: 0 pending\n Not visible: /a: mount it from the host; the end of its containers is not noticed\n Not visible: /b: mount it"},
		"released":     {`{"pending":2,"oldest":"2026-03-01T11:57:00.000Z","delay-seconds":600}`, "Ended containers: 2 pending, the oldest ended 3m ago; released after 10m (--missing-netns-release-delay)\nLast error: none\nCounters: none"},
		"not released": {`{"pending":1}`, "Ended containers: 1 pending; not released: --missing-netns-release-delay is 0\n"},
	} {
		t.Run(name, func(t *testing.T) {
			s := startDaemon(t, map[string][]response{"GET /v1/healthz": {jsonResponse(200, `{"delegated-ipam":{"ended-containers":`+tt.ended+`}}`)}})
			o := s.dependencies().exec(t, "status")
			o.wants(t, cmdline.ExitOK, o.stdout)
			if got := regexp.MustCompile(` +`).ReplaceAllString(o.stdout, " "); !strings.Contains(got, tt.want) {
				t.Errorf("it printed\n%s\nwant %q", got, tt.want)
			}
		})
	}
}

func TestJSON(t *testing.T) {
	for command, file := range map[string]string{"list": "attachments.json", "status": "status-not-ready.json"} {
		body := read(t, file)
		s := startDaemon(t, map[string][]response{"GET /v1/ipam": {jsonResponse(200, body)}, "GET /v1/healthz": {jsonResponse(200, body)}})
		o := s.dependencies().exec(t, command, "-o", "json")
		o.wants(t, cmdline.ExitOK, o.stdout)
		var got, want any
		err := errors.Join(json.Unmarshal([]byte(o.stdout), &got), json.Unmarshal([]byte(body), &want))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v, %v; want %v", command, got, err, want)
		}
	}
}

func TestListTable(t *testing.T) {
	s := startDaemon(t, map[string][]response{
		"GET /v1/ipam":    {jsonResponse(200, read(t, "attachments.json"))},
		"GET /v1/healthz": {jsonResponse(200, read(t, "status-ready.json"))},
	})
	o := s.dependencies().exec(t, "list")
	o.wants(t, cmdline.ExitOK, o.stdout)
	golden(t, "list.txt", o.stdout)
	s.wantRequests(t, "GET /v1/ipam", "GET /v1/healthz")
	wantNarrow(t, o.stdout)
	o = s.dependencies().exec(t, "list", "-o", "wide")
	o.wants(t, cmdline.ExitOK, o.stdout)
	golden(t, "list-wide.txt", o.stdout)
}

func wantNarrow(t *testing.T, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > output.Width {
			t.Errorf("a line has %d characters; want at most %d: %s", n, output.Width, line)
		}
	}
}

// Long names and addresses do not make a line longer.
func TestListNarrow(t *testing.T) {
	const longest = `"addresses":[{"family":"ipv4","ip":"203.0.113.255"},{"family":"ipv6","ip":"2001:db8:1111:2222:3333:4444:5555:6666"}],"claims":[],"created":"2025-01-01T00:00:00Z","changed":"2025-01-01T00:00:00Z"`
	one := `{"owner":"cni/` + strings.Repeat("0123456789abcdef", 4) + `/eth0","pod":"kube-system/coredns-7db6d8ff4d-abcde","pool":"default","state":"releasing",` + longest + `,"last-error":"` + strings.Repeat("x", 200) + `"}`
	other := `{"owner":"kube-system/coredns-7db6d8ff4d-abcde","pool":"a-pool-with-a-long-name","state":"held",` + longest + `}`
	for name, body := range map[string]string{"one pool": "[" + one + "]", "two pools": "[" + one + "," + other + "]", "none": "[]"} {
		s := startDaemon(t, map[string][]response{"GET /v1/ipam": {jsonResponse(200, body)}})
		o := s.dependencies().exec(t, "list")
		o.wants(t, cmdline.ExitOK, o.stdout)
		wantNarrow(t, o.stdout)
		if strings.Contains(body, one) {
			for _, want := range []string{"2001:db8:1111:2222:3333:4444:5555:6666", "kube-system/coredns-7db6d8ff4d-a"} {
				if !strings.Contains(o.stdout, want) {
					t.Errorf("%s: it lacks %s:\n%s", name, want, o.stdout)
				}
			}
		}
	}
}

func TestListFilters(t *testing.T) {
	for flags, want := range map[string]string{
		"":                                    "old ingress gone health kube-system/coredns-1 router",
		"--owner=kube-system/*,router":        "kube-system/coredns-1 router",
		"--owner=shop/web":                    "old",
		"--state=held":                        "gone kube-system/coredns-1 router",
		"--pool=blue":                         "kube-system/coredns-1",
		"--address=10.15.0.2":                 "router",
		"--address=10.15.0.4/31,fd00:15::/64": "old router",
		"--address=10.15.0.77":                "gone",
		"--state=held --pool=default --owner=*e*": "gone router",
		"--owner=nobody": "",
	} {
		body := strings.NewReplacer(`{"owner": "old",`, `{"owner": "old", "pod": "shop/web",`, `{"owner": "gone",`, `{"owner": "gone", "given-up": ["10.15.0.77"],`).Replace(read(t, "attachments.json"))
		s := startDaemon(t, map[string][]response{"GET /v1/ipam": {jsonResponse(200, body)}})
		o := s.dependencies().exec(t, append([]string{"list", "-o=json"}, strings.Fields(flags)...)...)
		o.wantsAnyOutput(t, cmdline.ExitOK)
		var all []*models.Attachment
		if err := json.Unmarshal([]byte(o.stdout), &all); err != nil {
			t.Fatal(err)
		}
		got := map[string]bool{}
		for _, a := range all {
			got[a.Owner] = true
		}
		wanted := strings.Fields(want)
		if len(got) != len(wanted) || slices.ContainsFunc(wanted, func(owner string) bool { return !got[owner] }) {
			t.Errorf("%s lists %v; want %s", flags, got, want)
		}
	}
	for flags, words := range map[string]string{"--owner=\xff": "--owner", "--state=gone": "adding", "--address=x": "--address", "--summary --watch": "expected one of them"} {
		testDependencies(nil).exec(t, append([]string{"list"}, strings.Fields(flags)...)...).wants(t, cmdline.ExitUsage, "", words)
	}
	s := startDaemon(t, map[string][]response{"GET /v1/ipam": {jsonResponse(200, "[]")}, "GET /v1/healthz": {jsonResponse(200, read(t, "status-ready.json"))}})
	s.dependencies().exec(t, "list", "--pool=typo").wants(t, cmdline.ExitFailed, "", `no pool "typo"`, "blue")
}

// untilText cancels when it was written.
type untilText struct {
	strings.Builder
	text   string
	cancel func()
}

func (u *untilText) Write(p []byte) (int, error) {
	n, err := u.Builder.Write(p)
	if strings.Contains(u.String(), u.text) {
		u.cancel()
	}
	return n, err
}

func TestListWatch(t *testing.T) {
	one := func(owner, state string) string {
		return `{"owner":"` + owner + `","pool":"default","state":"` + state + `","addresses":[{"family":"ipv4","ip":"10.15.0.2"}],"claims":[],"created":"2026-03-01T11:59:00Z","changed":"2026-03-01T11:59:00Z","verified":"2026-03-01T11:59:00Z"}`
	}
	lists := func(bodies ...string) (all []response) {
		for _, body := range bodies {
			all = append(all, jsonResponse(200, "["+body+"]"))
		}
		return all
	}
	for flag, want := range map[string]string{
		"table": `12:00:00   added     held        router   10.15.0.2
12:00:00   added     adding      node-10   10.15.0.2
12:00:00   changed   releasing   router   10.15.0.2
12:00:00   removed   -           router   10.15.0.2
`,
		"json": `{"time":"2026-03-01T12:00:00Z","change":"removed","attachment":`,
	} {
		both := one("router", "held") + "," + one("node-10", "adding")
		s := startDaemon(t, map[string][]response{"GET /v1/ipam": slices.Concat(
			lists(one("router", "held"), strings.ReplaceAll(both, `"verified"`, `"last-used"`), one("router", "releasing")+","+one("node-10", "adding")),
			[]response{{code: 500}, {code: 500}}, lists(one("node-10", "adding")))})
		ctx, cancel := context.WithCancel(t.Context())
		out, stderr := &untilText{text: "removed", cancel: cancel}, &strings.Builder{}
		code := cmdline.Execute(ctx, s.dependencies().command(), []string{"list", "--watch", "-o", flag}, out, stderr)
		if code != cmdline.ExitOK || strings.Count(stderr.String(), "the watch continues") != 1 || !strings.Contains(out.String(), want) || strings.Count(out.String(), "\n") != 4 {
			t.Errorf("got %d\n%s%s", code, out, stderr)
		}
	}
	s := startDaemon(t, map[string][]response{"GET /v1/ipam": {{code: 403}}})
	s.dependencies().exec(t, "list", "--watch").wants(t, cmdline.ExitFailed, "", "list: ", "403")
}

func TestListSummary(t *testing.T) {
	for flag, want := range map[string]string{
		"table": `POOL      FAMILY   USED      FREE      TOTAL
default   IPv4     12        241       253
default   IPv6     3         1.8e+19   1.8e+19
blue      IPv4     5         0         5
blue      IPv6     4         unknown   unknown
new       -        unknown   unknown   unknown
`,
		"json": `[{"pool":"default","addresses":[{"family":"ipv4","free":241,"total":253,"used":12},{"family":"ipv6","free":18446744073709552000,"total":18446744073709552000,"used":3}]},` +
			`{"pool":"blue","addresses":[{"family":"ipv4","free":0,"total":5,"used":5},{"family":"ipv6","used":4}]},{"pool":"new","addresses":[]}]`,
	} {
		s := startDaemon(t, map[string][]response{"GET /v1/healthz": {jsonResponse(200, read(t, "status-ready.json"))}})
		o := s.dependencies().exec(t, "list", "--summary", "-o", flag)
		if flag == "json" {
			var compact bytes.Buffer
			if err := json.Compact(&compact, []byte(o.stdout)); err != nil {
				t.Error(err)
			}
			o.stdout = compact.String()
		}
		o.wants(t, cmdline.ExitOK, want)
	}
}

// Without the right to see the status the list ends with its last row.
func TestListWithoutAddresses(t *testing.T) {
	for name, tt := range map[string]response{
		"no details": jsonResponse(200, `{"cilium":{"state":"Ok"}}`),
		"refused":    {code: 403},
		"no ranges":  jsonResponse(200, read(t, "status-not-ready.json")),
	} {
		t.Run(name, func(t *testing.T) {
			s := startDaemon(t, map[string][]response{"GET /v1/ipam": {jsonResponse(200, "[]")}, "GET /v1/healthz": {tt}})
			s.dependencies().exec(t, "list").wants(t, cmdline.ExitOK, "OWNER   STATE   AGE   ADDRESSES\n")
		})
	}
}

func TestListEmpty(t *testing.T) {
	s := startDaemon(t, map[string][]response{"GET /v1/ipam": {jsonResponse(200, "[]")}})
	for _, socket := range []string{s.socket, "unix://" + s.socket} {
		testDependencies(map[string]string{options.SocketEnv: socket}).exec(t, "list").wants(t, cmdline.ExitOK, "OWNER   STATE   AGE   ADDRESSES\n")
	}
}

func TestListEscapes(t *testing.T) {
	s := startDaemon(t, map[string][]response{"GET /v1/ipam": {jsonResponse(200, `[{"owner":"left\u202etfel\u2028x","pool":"default","last-error":"a\u001b[31m\tb"}]`)}})
	o := s.dependencies().exec(t, "list")
	o.wants(t, cmdline.ExitOK, o.stdout)
	if want := `left\u202etfel\u2028x   -`; !strings.Contains(o.stdout, want) || !strings.Contains(o.stdout, `a\x1b[31m b`) {
		t.Errorf("it printed %q; want %q, and no escape sequence", o.stdout, want)
	}
}
