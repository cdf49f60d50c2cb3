package logging

import (
	"fmt"
	"unicode/utf8"
)

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
