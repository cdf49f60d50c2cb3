package profiletry

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// minText is how many letters the constant part of an error must have to recognize it.
const minText = 8

// masked stands for a part of an error that differs between calls. No plugin's text has it: the
// runner removes control characters.
const masked = '\x00'

// errorText returns code and text of the plugin's own error.
func errorText(e *call.Error) string {
	return fmt.Sprintf("code %d: %s", e.Code, strings.TrimSpace(e.Msg+" "+e.Details))
}

// lostOf returns the description of two errors of CHECK for an ID that holds nothing: their codes
// and their longest common text without variables. Code alone is not enough, because a plugin built
// with CNI's skel package has one code for every error.
func lostOf(a, b *call.Error, variables []string) (profile.Lost, error) {
	lost := profile.Lost{Codes: []uint{a.Code, b.Code}}
	slices.Sort(lost.Codes)
	lost.Codes = slices.Compact(lost.Codes)
	text := func(e *call.Error) string {
		if strings.TrimSpace(e.Msg) == "" {
			return e.Details
		}
		return e.Msg
	}
	lost.Message = commonText(mask(text(a), variables), mask(text(b), variables))
	if letters := strings.Count(strings.Map(letterOnly, lost.Message), "x"); letters < minText {
		return lost, errors.New("the two errors have no text in common by which they could be recognized")
	}
	return lost, nil
}

func letterOnly(r rune) rune {
	if unicode.IsLetter(r) {
		return 'x'
	}
	return -1
}

// mask replaces the variables in a text, the longest first, because one may be a part of another.
func mask(text string, variables []string) string {
	variables = slices.Clone(variables)
	slices.SortFunc(variables, func(a, b string) int { return len(b) - len(a) })
	for _, v := range variables {
		if v != "" {
			text = strings.ReplaceAll(text, v, string(masked))
		}
	}
	return text
}

// commonText returns the longest text that is in both, without spaces around it.
func commonText(a, b string) string {
	x, y := []rune(a), []rune(b)
	best, end := 0, 0
	before := make([]int, len(y)+1)
	for i, r := range x {
		now := make([]int, len(y)+1)
		for j := range y {
			if r != masked && r == y[j] {
				now[j+1] = before[j] + 1
			}
			if now[j+1] > best {
				best, end = now[j+1], i+1
			}
		}
		before = now
	}
	return strings.TrimSpace(string(x[end-best : end]))
}
