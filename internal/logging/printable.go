package logging

import (
	"strconv"
	"strings"
	"unicode"
)

// Printable returns text that is safe on a line of a log or a terminal: characters that are
// invisible, control the terminal or change the direction of writing are escaped as in a Go
// string, such as \x1b or \u202e. Owners and file names may contain such characters.
func Printable(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if strings.IndexFunc(text, unprintable) < 0 {
		return text
	}
	var out strings.Builder
	for _, r := range text {
		if unprintable(r) {
			out.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		} else {
			out.WriteRune(r)
		}
	}
	return out.String()
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }
