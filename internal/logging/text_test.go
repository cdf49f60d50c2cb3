package logging

import "testing"

func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"kube-system/coredns-1":     "kube-system/coredns-1",
		"日本語 'and' \"quotes\" \\ é": "日本語 'and' \"quotes\" \\ é",
		"a\x1b[31mred":              `a\x1b[31mred`,
		"a\tb\nc\x00":               `a\tb\nc\x00`,
		"left\u202etfel":            `left\u202etfel`,
		"line\u2028end":             `line\u2028end`,
		"zero\u200bwidth":           `zero\u200bwidth`,
		"\u009b31m":                 `\u009b31m`,
		"Übergröße – \xff":          "Übergröße – \uFFFD",
	} {
		if got := Printable(text); got != want {
			t.Errorf("%q gives %q; want %q", text, got, want)
		}
	}
}

func TestOneLine(t *testing.T) {
	if got, want := OneLine(" a\n\tb \x1b[2J\xff\r"), `a b \x1b[2J`+"\uFFFD"; got != want {
		t.Errorf("got %q; want %q", got, want)
	}
}

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
