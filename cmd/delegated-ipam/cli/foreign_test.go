package cli

import (
	"strings"
	"syscall"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
)

func TestForeignServer(t *testing.T) {
	agent := jsonAnswer(200, `{"cilium":{"state":"Ok"}}`)
	list, status := "GET /v1/ipam", "GET /v1/healthz"
	for name, tt := range map[string]struct {
		answers  map[string][]answer
		commands []string
	}{
		"cilium-agent":           {map[string][]answer{list: {jsonAnswer(405, `{"code":405,"message":"method GET is not allowed, but [POST] are"}`)}, status: {agent}}, []string{"list", "gc", "id router", "status", "release --all --yes"}},
		"unknown path":           {map[string][]answer{list: {jsonAnswer(404, `{"code":404,"message":"path was not found"}`)}}, []string{"list", "gc", "id router", "release --all --yes"}},
		"null for a list":        {map[string][]answer{list: {jsonAnswer(200, "null")}}, []string{"list", "gc", "id router", "release --all --yes"}},
		"null for an attachment": {map[string][]answer{list: {jsonAnswer(200, "[null]")}}, []string{"list", "gc", "id router", "release --all --yes"}},
		"null for an address":    {map[string][]answer{list: {jsonAnswer(200, `[{"addresses":[null]}]`)}}, []string{"list", "gc", "id router", "release --all --yes"}},
		"null for a pool":        {map[string][]answer{status: {jsonAnswer(200, `{"delegated-ipam":{"pools":[null]}}`)}}, []string{"status"}},
		"null for a record":      {map[string][]answer{status: {jsonAnswer(200, `{"delegated-ipam":{"quarantined":[null]}}`)}}, []string{"status"}},
		"null for an option":     {map[string][]answer{status: {jsonAnswer(200, `{"delegated-ipam":{"options":[null]}}`)}}, []string{"status"}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, line := range tt.commands {
				s := startSidecar(t, tt.answers)
				s.dependencies().exec(t, strings.Fields(line)...).wants(t, cmdline.ExitFailed, "", s.socket+" is not a socket of delegated-ipam")
			}
		})
	}
}

// fullDisk fails each write.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

func TestWriteError(t *testing.T) {
	for _, line := range []string{"allocate router", "allocate router -o json", "list", "list -o json", "status", "status -o json", "id router", "release 10.0.0.1", "version"} {
		s := startSidecar(t, map[string][]answer{
			"POST /v1/ipam":            {jsonAnswer(201, `{"address":{"ipv4":"10.0.0.1"}}`)},
			"GET /v1/ipam":             lists(heldBoth),
			"GET /v1/healthz":          {jsonAnswer(200, read(t, "status-ready.json"))},
			"DELETE /v1/ipam/10.0.0.1": {{code: 200}},
		})
		var stderr strings.Builder
		if code := cmdline.Execute(t.Context(), s.dependencies().command(), strings.Fields(line), fullDisk{}, &stderr); code != cmdline.ExitFailed || !strings.Contains(stderr.String(), "no space left") {
			t.Errorf("%s: status %d, stderr %q; want 1 and the reason", line, code, stderr.String())
		}
	}
}
