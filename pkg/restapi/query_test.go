package restapi

import (
	"net/url"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// net/http drops a parameter that cannot be decoded, and an owner with it.
func TestAQueryIsRefusedWhereItCannotBeDecodedAndNowhereElse(t *testing.T) {
	same := func(t interface{ Errorf(string, ...any) }, query string) {
		_, want := url.ParseQuery(query)
		if got := checkQuery(query); (got == nil) != (want == nil) {
			t.Errorf("%.40q: got %v, want %v", query, got, want)
		}
	}
	for name, query := range map[string]string{
		"none": "", "an escape": "owner=a%2Fb", "a cut escape": "owner=a%2", "a percent sign": "owner=%", "a sign in an escape": "owner=%+1",
		"no digits": "owner=%zz", "a semicolon": "a=b;c=d", "an escaped semicolon": "a=b%3Bc", "many parameters": strings.Repeat("a&", 9_000),
		"too many parameters": strings.Repeat("&", 20_000),
	} {
		t.Run(name, func(t *testing.T) { same(t, query) })
	}
	rapid.Check(t, func(t *rapid.T) { same(t, rapid.StringMatching(`[a=&;%0fG+_x]{0,12}`).Draw(t, "query")) })
}
