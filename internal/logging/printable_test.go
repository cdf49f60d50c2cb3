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
