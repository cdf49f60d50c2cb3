package cli

import (
	"testing"

	"github.com/delegated-ipam/delegated-ipam/pkg/option"
)

func TestStatusPrintsAPage(t *testing.T) {
	for name, file := range map[string]string{
		"of a sidecar that is ready":      "status-ready",
		"of one that is not":              "status-not-ready",
		"of one that has only just begun": "status-new",
	} {
		t.Run(name, func(t *testing.T) {
			s := startSidecar(t, map[string][]answer{"GET /v1/healthz": {jsonAnswer(200, read(t, file+".json"))}})
			o := s.program().runHere(t, "status")
			o.wants(t, option.Done, o.stdout)
			golden(t, file+".txt", o.stdout)
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
