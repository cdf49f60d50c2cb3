package cli

import (
	"testing"

	"github.com/delegated-ipam/delegated-ipam/pkg/option"
)

func TestStatusPrintsAPage(t *testing.T) {
	for name, tt := range map[string]struct {
		answer, page string
		flags        []string
	}{
		"of a sidecar that is ready":      {"status-ready.json", "status-ready.txt", nil},
		"of one that is, in full":         {"status-ready.json", "status-verbose.txt", []string{"--verbose"}},
		"of one that is not":              {"status-not-ready.json", "status-not-ready.txt", nil},
		"of one that has only just begun": {"status-new.json", "status-new.txt", nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := startSidecar(t, map[string][]answer{"GET /v1/healthz": {jsonAnswer(200, read(t, tt.answer))}})
			o := s.program().runHere(t, append([]string{"status"}, tt.flags...)...)
			o.wants(t, option.Done, o.stdout)
			golden(t, tt.page, o.stdout)
		})
	}
}

func TestStatusAsJSONIsWhatTheSidecarAnswered(t *testing.T) {
	body := read(t, "status-not-ready.json")
	s := startSidecar(t, map[string][]answer{"GET /v1/healthz": {jsonAnswer(200, body)}})
	o := s.program().runHere(t, "status", "-o", "json")
	o.wants(t, option.Done, o.stdout)
	if got, want := canonical(t, o.stdout), canonical(t, body); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
