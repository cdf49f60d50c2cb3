package response_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/response"
)

func TestReason(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"plain":          {`owner "a" is not admitted`, `owner "a" is not admitted`},
		"lines":          {"first\r\n  second\tthird ", "first second third"},
		"control":        {"a\x1b[31mb\x7f", `a\x1b[31mb\x7f`},
		"not ASCII":      {"é … 😀", `\u00e9 \u2026 \U0001f600`},
		"not UTF-8":      {"a\xffb", "a?b"},
		"empty":          {"", ""},
		"long":           {strings.Repeat("x", 1500), strings.Repeat("x", 1021) + "..."},
		"long, escaped":  {strings.Repeat("é", 500), strings.Repeat(`\u00e9`, 170) + "..."},
		"header forging": {"x\r\nSet-Cookie: a=b", "x Set-Cookie: a=b"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := response.Reason(tt.text); got != tt.want {
				t.Errorf("got %q; want %q", got, tt.want)
			}
		})
	}
}

func TestReasonIsHeaderValue(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		text := string(rapid.SliceOf(rapid.Byte()).Draw(rt, "text")) + rapid.String().Draw(rt, "end")
		got := response.Reason(strings.Repeat(text, rapid.IntRange(0, 50).Draw(rt, "times")))
		if len(got) > 1024 || strings.TrimSpace(got) != got {
			rt.Errorf("%d bytes %q; want at most 1024 without surrounding space", len(got), got)
		}
		for i := range len(got) {
			if got[i] < ' ' || got[i] > '~' {
				rt.Fatalf("byte %#x in %q; want printable ASCII", got[i], got)
			}
		}
	})
}
