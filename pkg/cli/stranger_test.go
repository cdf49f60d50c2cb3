package cli

import (
	"strings"
	"syscall"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/pkg/option"
)

func TestAnAnswerOfSomebodyElseIsRefusedAndNeverACrash(t *testing.T) {
	agent := jsonAnswer(200, `{"cilium":{"state":"Ok"}}`)
	list, status := "GET /v1/ipam", "GET /v1/healthz"
	for name, tt := range map[string]struct {
		answers  map[string][]answer
		commands []string
	}{
		"cilium-agent's list":              {map[string][]answer{list: {jsonAnswer(405, `{"code":405,"message":"method GET is not allowed, but [POST] are"}`)}, status: {agent}}, []string{"list", "gc", "id router", "status", "release --all --yes"}},
		"a path that there is not":         {map[string][]answer{list: {jsonAnswer(404, `{"code":404,"message":"path was not found"}`)}}, []string{"list", "gc", "id router", "release --all --yes"}},
		"a list that is none":              {map[string][]answer{list: {jsonAnswer(200, "null")}}, []string{"list", "gc", "id router", "release --all --yes"}},
		"nothing for an attachment":        {map[string][]answer{list: {jsonAnswer(200, "[null]")}}, []string{"list", "gc", "id router", "release --all --yes"}},
		"nothing for an address":           {map[string][]answer{list: {jsonAnswer(200, `[{"addresses":[null]}]`)}}, []string{"list", "gc", "id router", "release --all --yes"}},
		"nothing for a pool":               {map[string][]answer{status: {jsonAnswer(200, `{"delegated-ipam":{"pools":[null]}}`)}}, []string{"status"}},
		"nothing for a quarantined record": {map[string][]answer{status: {jsonAnswer(200, `{"delegated-ipam":{"quarantined":[null]}}`)}}, []string{"status"}},
		"nothing for an option":            {map[string][]answer{status: {jsonAnswer(200, `{"delegated-ipam":{"options":[null]}}`)}}, []string{"status"}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, line := range tt.commands {
				s := startSidecar(t, tt.answers)
				s.program().runHere(t, strings.Fields(line)...).wants(t, option.Failed, "", s.socket+" is no socket of delegated-ipam")
			}
		})
	}
}

// full is a disk without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

func TestWhatCannotBePrintedIsAFailure(t *testing.T) {
	for _, line := range []string{"allocate router", "allocate router -o json", "list", "list -o json", "status", "status -o json", "id router", "release 10.0.0.1", "version"} {
		s := startSidecar(t, map[string][]answer{
			"POST /v1/ipam":            {jsonAnswer(201, `{"address":{"ipv4":"10.0.0.1"}}`)},
			"GET /v1/ipam":             lists(heldBoth),
			"GET /v1/healthz":          {jsonAnswer(200, read(t, "status-ready.json"))},
			"DELETE /v1/ipam/10.0.0.1": {{code: 200}},
		})
		var stderr strings.Builder
		if code := s.program().run(t.Context(), strings.Fields(line), full{}, &stderr); code != option.Failed || !strings.Contains(stderr.String(), "no space left") {
			t.Errorf("%s: status %d, stderr %q; want 1 and the reason", line, code, stderr.String())
		}
	}
}
