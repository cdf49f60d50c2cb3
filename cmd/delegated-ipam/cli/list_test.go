package cli

import (
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
)

func TestListTable(t *testing.T) {
	s := startSidecar(t, map[string][]response{"GET /v1/ipam": {jsonResponse(200, read(t, "attachments.json"))}})
	o := s.dependencies().exec(t, "list")
	o.wants(t, cmdline.ExitOK, o.stdout)
	golden(t, "list.txt", o.stdout)
}

func TestListEmpty(t *testing.T) {
	s := startSidecar(t, map[string][]response{"GET /v1/ipam": {jsonResponse(200, "[]")}})
	s.dependencies().exec(t, "list").wants(t, cmdline.ExitOK, "OWNER   POOL   STATE   ADDRESSES   CLAIMS   AGE   CONTAINER-ID   NOTE\n")
}

func TestListEscapes(t *testing.T) {
	s := startSidecar(t, map[string][]response{"GET /v1/ipam": {jsonResponse(200, `[{"owner":"left\u202etfel\u2028x","pool":"default","last-error":"a\u001b[31m\tb"}]`)}})
	o := s.dependencies().exec(t, "list")
	o.wants(t, cmdline.ExitOK, o.stdout)
	if want := `left\u202etfel\u2028x   default`; !strings.Contains(o.stdout, want) || !strings.Contains(o.stdout, `a\x1b[31m b`) {
		t.Errorf("it printed %q; want %q, and no escape sequence", o.stdout, want)
	}
}
