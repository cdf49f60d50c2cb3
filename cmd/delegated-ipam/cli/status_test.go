package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
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
			s := startSidecar(t, map[string][]response{"GET /v1/healthz": {jsonResponse(200, read(t, tt.response))}})
			o := s.dependencies().exec(t, append([]string{"status"}, tt.flags...)...)
			o.wants(t, cmdline.ExitOK, o.stdout)
			golden(t, tt.file, o.stdout)
		})
	}
}

// Nothing unusual is known without a pending container; a report of the runtime is shown.
func TestStatusEndedContainers(t *testing.T) {
	for name, tt := range map[string]struct{ ended, want string }{
		"nothing":      {`{"pending":0,"delay":600}`, "Last error: none\nCounters: nothing unusual"},
		"report":       {`{"pending":0,"runtime":"containerd v2.4.2","reported":"2026-03-01T11:59:30.000Z","sandboxes":12}`, "Ended containers: 0 pending\n Runtime: containerd v2.4.2, 12 sandboxes, reported 30s ago\nLast error: none\nCounters: nothing unusual"},
		"hidden":       {`{"pending":0,"delay":600,"hidden-directories":["/a","/b"]}`, "Ended containers: 0 pending\n Not visible: /a: mount it from the host; the end of its containers is not noticed\n Not visible: /b: mount it"},
		"released":     {`{"pending":2,"oldest":"2026-03-01T11:57:00.000Z","delay":600}`, "Ended containers: 2 pending, the oldest ended 3m ago; released after 10m (--missing-netns-release-delay)\nLast error: none\nCounters: none"},
		"not released": {`{"pending":1}`, "Ended containers: 1 pending; not released: --missing-netns-release-delay is 0\n"},
	} {
		t.Run(name, func(t *testing.T) {
			s := startSidecar(t, map[string][]response{"GET /v1/healthz": {jsonResponse(200, `{"delegated-ipam":{"ended-containers":`+tt.ended+`}}`)}})
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
		s := startSidecar(t, map[string][]response{"GET /v1/ipam": {jsonResponse(200, body)}, "GET /v1/healthz": {jsonResponse(200, body)}})
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
	s := startSidecar(t, map[string][]response{
		"GET /v1/ipam":    {jsonResponse(200, read(t, "attachments.json"))},
		"GET /v1/healthz": {jsonResponse(200, read(t, "status-ready.json"))},
	})
	o := s.dependencies().exec(t, "list")
	o.wants(t, cmdline.ExitOK, o.stdout)
	golden(t, "list.txt", o.stdout)
	s.wantRequests(t, "GET /v1/ipam", "GET /v1/healthz")
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
		s := startSidecar(t, map[string][]response{"GET /v1/healthz": {jsonResponse(200, read(t, "status-ready.json"))}})
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
			s := startSidecar(t, map[string][]response{"GET /v1/ipam": {jsonResponse(200, "[]")}, "GET /v1/healthz": {tt}})
			s.dependencies().exec(t, "list").wants(t, cmdline.ExitOK, "OWNER   POOL   STATE   ADDRESSES   CLAIMS   AGE   CONTAINER-ID   NOTE\n")
		})
	}
}

func TestListEmpty(t *testing.T) {
	s := startSidecar(t, map[string][]response{"GET /v1/ipam": {jsonResponse(200, "[]")}})
	for _, socket := range []string{s.socket, "unix://" + s.socket} {
		testDependencies(map[string]string{options.SocketEnv: socket}).exec(t, "list").wants(t, cmdline.ExitOK, "OWNER   POOL   STATE   ADDRESSES   CLAIMS   AGE   CONTAINER-ID   NOTE\n")
	}
}

func TestListEscapes(t *testing.T) {
	s := startSidecar(t, map[string][]response{"GET /v1/ipam": {jsonResponse(200, `[{"owner":"left\u202etfel\u2028x","pool":"default","last-error":"a\u001b[31m\tb"}]`)}})
	o := s.dependencies().exec(t, "list")
	o.wants(t, cmdline.ExitOK, o.stdout)
	if want := `left\u202etfel\u2028x   default`; !strings.Contains(o.stdout, want) || !strings.Contains(o.stdout, `a\x1b[31m b`) {
		t.Errorf("it printed %q; want %q, and no escape sequence", o.stdout, want)
	}
}
