package profiletry

import (
	"encoding/json"
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

// lostOf returns the description of two errors for IDs that hold nothing: their codes and their longest common text
// without variables, of the details if both have some, or else of the message, which no other error has. Code alone is
// not enough, because a plugin built with CNI's skel package has one code for every error.
func lostOf(a, b *call.Error, variables []string, others []*call.Error) (profile.Lost, error) {
	lost := profile.Lost{Codes: []uint{a.Code, b.Code}}
	slices.Sort(lost.Codes)
	lost.Codes = slices.Compact(lost.Codes)
	details := commonText(mask(a.Details, variables), mask(b.Details, variables))
	err := errors.New("the two errors have no text in common by which they could be recognized")
	for _, text := range []string{details, commonText(mask(a.Msg, variables), mask(b.Msg, variables))} {
		if letters(text) < minText {
			continue
		}
		has := func(e *call.Error) bool { return strings.Contains(e.Msg, text) || strings.Contains(e.Details, text) }
		if i := slices.IndexFunc(others, has); i >= 0 {
			err = fmt.Errorf("another error has the text %q, too: %s of %s", text, others[i].Verb, errorText(others[i]))
			continue
		}
		lost.Message = text
		return lost, nil
	}
	return lost, err
}

func letters(text string) (n int) {
	for _, r := range text {
		if unicode.IsLetter(r) {
			n++
		}
	}
	return n
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

// variables are the parts of an error that differ between calls.
func (r *run) variables() []string {
	all := []string{r.Network.Name}
	var config struct{ IPAM any }
	if len(r.scratches) > 0 && json.Unmarshal(r.scratches[0].call.Config, &config) == nil {
		all = append(all, texts(config.IPAM)...) // such as the name of the plugin's pool
	}
	for _, s := range r.scratches {
		all = append(all, s.call.ContainerID, s.call.IfName, s.call.NetNS)
	}
	for _, a := range []attempt{r.seen.first, r.seen.second, r.seen.again} {
		all = append(all, prefixes(a.result)...)
		for _, ip := range addrs(a.result) {
			all = append(all, ip.String())
		}
	}
	return all
}

// texts returns the texts in a JSON value, without its keys.
func texts(value any) (all []string) {
	switch v := value.(type) {
	case string: // a list, too, such as of the names of pools
		all = append(strings.FieldsFunc(v, func(r rune) bool { return strings.ContainsRune(",; ", r) }), v)
	case []any:
		for _, e := range v {
			all = append(all, texts(e)...)
		}
	case map[string]any:
		for _, e := range v {
			all = append(all, texts(e)...)
		}
	}
	return all
}
