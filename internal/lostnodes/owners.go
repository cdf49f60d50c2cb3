package lostnodes

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
)

// maxOwners limits the owners of one node: no node has more pods.
const maxOwners = 65536

// span matches numbered owners: a prefix, the first number and the last.
var span = regexp.MustCompile(`^(.*?)(0|[1-9][0-9]*)\.\.(0|[1-9][0-9]*)$`)

// Expand returns owners, each once: "ciliumnode-0..2" stands for ciliumnode-0, ciliumnode-1 and
// ciliumnode-2, and any other text for itself. The error names the text and the expectation.
func Expand(texts []string) ([]string, error) {
	var owners []string
	for _, text := range texts {
		more, err := expand(text)
		if err != nil {
			return nil, err
		}
		if owners = append(owners, more...); len(owners) > maxOwners {
			return nil, fmt.Errorf("more than %d owners; expected those of one node", maxOwners)
		}
	}
	seen := map[string]bool{}
	return slices.DeleteFunc(owners, func(o string) bool {
		again := seen[o]
		seen[o] = true
		return again
	}), nil
}

func expand(text string) ([]string, error) {
	if text == "" {
		return nil, fmt.Errorf("owner %q; expected a name such as router, or names with numbers such as ciliumnode-0..41", text)
	}
	m := span.FindStringSubmatch(text)
	if m == nil {
		return []string{text}, nil
	}
	first, errFirst := strconv.Atoi(m[2])
	last, errLast := strconv.Atoi(m[3])
	if errFirst != nil || errLast != nil || first > last || last-first >= maxOwners {
		return nil, fmt.Errorf("owner %q; expected PREFIX and FIRST..LAST, of which the first is not above the last, at most %d in all", text, maxOwners)
	}
	owners := make([]string, 0, last-first+1)
	for n := first; n <= last; n++ {
		owners = append(owners, m[1]+strconv.Itoa(n))
	}
	return owners, nil
}
