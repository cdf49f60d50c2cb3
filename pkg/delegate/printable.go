package delegate

import (
	"strings"
	"unicode"
)

// maxWords bounds in bytes each text of a plugin that goes into logs and answers.
const maxWords = 4 << 10

// printable makes a plugin's words fit for one line of a log: control
// characters, which could forge lines or drive a terminal, and runs of white
// space become one space; what is no UTF-8 becomes the replacement character.
func printable(b []byte) string {
	s := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(string(b), "\uFFFD"))
	return strings.Join(strings.Fields(s), " ")
}

// head returns at most the first n bytes.
func head(b []byte, n int) []byte {
	return b[:min(n, len(b))]
}
