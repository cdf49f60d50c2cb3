package profile

import (
	"os"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

func TestSources(t *testing.T) {
	for name, p := range load(t) {
		if len(p.Sources) == 0 || p.Type != name {
			t.Errorf("profile %q of type %q has no sources", name, p.Type)
		}
	}
}

// The example of the page is a valid profile.
func TestDocsProfile(t *testing.T) {
	page, err := os.ReadFile("../../../docs/reference/profiles.md")
	check.Must(t, err)
	_, after, found := strings.Cut(string(page), "```json\n{\n  \"type\"")
	example, _, closed := strings.Cut(after, "```")
	if !found || !closed {
		t.Fatal("docs/reference/profiles.md has no profile")
	}
	p, err := Parse([]byte("{\n  \"type\"" + example))
	check.Must(t, err)
	if p.Type != "my-ipam" {
		t.Errorf("got a profile of %q, want the example's", p.Type)
	}
}
