package benchpage

import (
	"bytes"
	"fmt"
	"os"
)

// Replace replaces the text of a page between the marks of a make target:
//
//	<!-- written by TARGET: begin -->
//	<!-- written by TARGET: end -->
//
// It fails if the page does not have both.
func Replace(page, target, text string) error {
	before, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	mark := func(which string) []byte { return fmt.Appendf(nil, "<!-- written by %s: %s -->\n", target, which) }
	head, rest, begins := bytes.Cut(before, mark("begin"))
	_, tail, ends := bytes.Cut(rest, mark("end"))
	if !begins || !ends {
		return fmt.Errorf("%s: marks %q and %q not found; expected the tables between them", page, mark("begin"), mark("end"))
	}
	return os.WriteFile(page, bytes.Join([][]byte{head, mark("begin"), []byte(text), mark("end"), tail}, nil), 0o644)
}
