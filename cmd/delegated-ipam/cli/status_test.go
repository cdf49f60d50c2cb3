package cli

import (
	"testing"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
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

func TestStatusJSON(t *testing.T) {
	body := read(t, "status-not-ready.json")
	s := startSidecar(t, map[string][]response{"GET /v1/healthz": {jsonResponse(200, body)}})
	o := s.dependencies().exec(t, "status", "-o", "json")
	o.wants(t, cmdline.ExitOK, o.stdout)
	if got, want := canonical(t, o.stdout), canonical(t, body); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
