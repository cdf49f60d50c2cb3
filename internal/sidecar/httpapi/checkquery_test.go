package httpapi

import (
	"net/url"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// checkQuery must fail exactly where url.ParseQuery does.
func TestCheckQuery(t *testing.T) {
	compare := func(t interface{ Errorf(string, ...any) }, query string) {
		_, want := url.ParseQuery(query)
		if got := checkQuery(query); (got == nil) != (want == nil) {
			t.Errorf("%.40q: got %v, want %v", query, got, want)
		}
	}
	for name, query := range map[string]string{
		"empty": "", "escape": "owner=a%2Fb", "short escape": "owner=a%2", "percent sign": "owner=%", "sign in an escape": "owner=%+1",
		"no hex digits": "owner=%zz", "semicolon": "a=b;c=d", "escaped semicolon": "a=b%3Bc", "many parameters": strings.Repeat("a&", 9_000),
		"too many parameters": strings.Repeat("&", 20_000),
	} {
		t.Run(name, func(t *testing.T) { compare(t, query) })
	}
	rapid.Check(t, func(t *rapid.T) { compare(t, rapid.StringMatching(`[a=&;%0fG+_x]{0,12}`).Draw(t, "query")) })
}
