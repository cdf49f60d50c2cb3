package doctor

import (
	"strings"
	"testing"
	"time"

	"github.com/go-openapi/strfmt"

	"github.com/delegated-ipam/delegated-ipam/api/models"
)

func TestCheckEndedContainers(t *testing.T) {
	old := strfmt.DateTime(time.Now().Add(-time.Hour))
	hidden := []string{"/run/netns"}
	for name, tt := range map[string]struct {
		status *models.EndedContainers
		state  State // empty for no finding
		text   string
	}{
		"none":                     {&models.EndedContainers{DelaySeconds: 600}, "", ""},
		"released later":           {&models.EndedContainers{DelaySeconds: 600, Pending: 2, Oldest: &old}, OK, "2 containers ended without a DEL, the first for 1h0m0s; they are released after 10m0s"},
		"never released":           {&models.EndedContainers{Pending: 2, Oldest: &old}, Warning, "and keep their addresses"},
		"hidden":                   {&models.EndedContainers{DelaySeconds: 600, HiddenDirectories: hidden}, Warning, "in /run/netns cannot be seen"},
		"hidden, and never":        {&models.EndedContainers{HiddenDirectories: hidden}, "", ""},
		"hidden, but runtime asks": {&models.EndedContainers{DelaySeconds: 600, HiddenDirectories: hidden, Runtime: "containerd v2.4.2"}, "", ""},
	} {
		r, o := &report{}, &Observations{Status: &models.DelegatedIPAMStatus{EndedContainers: tt.status}}
		when(knowsEndedContainers, checkEndedContainers)(o, r)
		switch {
		case tt.state == "" && len(r.findings) > 0:
			t.Errorf("%s: found %+v", name, r.findings)
		case tt.state != "" && (len(r.findings) != 1 || r.findings[0].State != tt.state || !strings.Contains(r.findings[0].Message, tt.text)):
			t.Errorf("%s: found %+v; want %s with %q", name, r.findings, tt.state, tt.text)
		}
	}
}
