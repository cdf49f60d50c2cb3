package logging

import "testing"

func TestShorten(t *testing.T) {
	for _, c := range []struct {
		text  string
		limit int
		want  string
	}{
		{"", 3, ""},
		{"abc", 3, "abc"},
		{"abcd", 3, "abc… (4 bytes)"},
		{"aäöü", 4, "aä… (7 bytes)"},
		{"ä", 1, "… (2 bytes)"},
		{"\x80\x80\x80\x80\x80\x80\x80\x80", 6, "\x80\x80… (8 bytes)"},
	} {
		if got := Shorten(c.text, c.limit); got != c.want {
			t.Errorf("%q shortened to %d bytes is %q; want %q", c.text, c.limit, got, c.want)
		}
	}
}
