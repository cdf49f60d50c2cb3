package option

import (
	"strconv"
	"strings"
	"unicode"
)

// Printable is a text as it may stand on a line of a terminal: what cannot be seen,
// drives a terminal or turns the direction of writing is escaped as in a Go string,
// such as \x1b or \u202e. An owner may hold such characters, and so may a file's name.
func Printable(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if strings.IndexFunc(text, unseen) < 0 {
		return text
	}
	var out strings.Builder
	for _, r := range text {
		if unseen(r) {
			out.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		} else {
			out.WriteRune(r)
		}
	}
	return out.String()
}

func unseen(r rune) bool { return !unicode.IsPrint(r) }
