package cli

import (
	"encoding/json"
	"errors"
	"reflect"
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
	s := startSidecar(t, map[string][]response{"GET /v1/ipam": {jsonResponse(200, read(t, "attachments.json"))}})
	o := s.dependencies().exec(t, "list")
	o.wants(t, cmdline.ExitOK, o.stdout)
	golden(t, "list.txt", o.stdout)
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
