package logging

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable returns text that is safe on a line of a log or a terminal: characters that are
// invisible, control the terminal or change the direction of writing are escaped as in a Go
// string, such as \x1b or \u202e. Owners and file names may contain such characters.
func Printable(text string) string {
	var out strings.Builder
	for _, r := range strings.ToValidUTF8(text, "\uFFFD") {
		if unicode.IsPrint(r) {
			out.WriteRune(r)
		} else {
			out.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return out.String()
}

// OneLine is Printable with each run of white space as one space.
func OneLine(text string) string { return Printable(strings.Join(strings.Fields(text), " ")) }

// Shorten returns text with at most limit bytes of it, and its length in bytes if that is more.
// Characters stay whole.
func Shorten(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	end := limit
	for end > 0 && limit-end < utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	return fmt.Sprintf("%s… (%d bytes)", text[:end], len(text))
}
