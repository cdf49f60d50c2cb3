package doctor

import (
	"strings"
	"testing"
	"time"

	"github.com/go-openapi/strfmt"

	"github.com/delegated-ipam/delegated-ipam/api/models"
)

func TestCheckSpool(t *testing.T) {
	now, old := strfmt.DateTime(time.Now()), strfmt.DateTime(time.Now().Add(-time.Hour))
	for name, tt := range map[string]struct {
		spool *models.SpoolStatus
		state State // empty for no finding
		text  string
	}{
		"older daemon":  {nil, "", ""},
		"empty":         {&models.SpoolStatus{Directory: "/s"}, "", ""},
		"new":           {&models.SpoolStatus{Directory: "/s", Pending: 1, Oldest: &now}, OK, "1 DELs of containers wait in /s"},
		"old":           {&models.SpoolStatus{Directory: "/s", Pending: 2, Oldest: &old, Error: "the server is away"}, Warning, "the oldest for 1h0m0s: the server is away"},
		"foreign files": {&models.SpoolStatus{Directory: "/s", Quarantined: 3}, Warning, "3 files of the spool were moved aside"},
		"unusable":      {&models.SpoolStatus{Error: "its mode is 0755"}, Warning, "the spool: its mode is 0755"},
	} {
		r, o := &report{}, &Observations{Status: &models.DelegatedIPAMStatus{Spool: tt.spool}}
		when(usesSpool, checkSpool)(o, r)
		switch {
		case tt.state == "" && len(r.findings) > 0:
			t.Errorf("%s: found %+v", name, r.findings)
		case tt.state != "" && (len(r.findings) != 1 || r.findings[0].State != tt.state || !strings.Contains(r.findings[0].Message, tt.text)):
			t.Errorf("%s: found %+v; want %s with %q", name, r.findings, tt.state, tt.text)
		}
	}
}
