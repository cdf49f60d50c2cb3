package cli

import "testing"

func TestATextOfOthersNeitherBreaksATableNorDrivesATerminal(t *testing.T) {
	for text, want := range map[string]string{
		"one\n  two\tthree":          "one two three",
		"\x1b[31mred\x1b[0m \a\x00!": "[31mred [0m !",
		"\u009b31m \u202e name":      "31m name",
		"Übergröße – \xff":           "Übergröße – \uFFFD",
	} {
		if got := oneLine(text); got != want {
			t.Errorf("oneLine(%q) = %q; want %q", text, got, want)
		}
	}
}
