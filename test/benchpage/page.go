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
	after, err := between(before, target, text)
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	return os.WriteFile(page, after, 0o644)
}

func between(page []byte, target, text string) ([]byte, error) {
	begin, end := mark(target, "begin"), mark(target, "end")
	head, rest, begins := bytes.Cut(page, begin)
	_, tail, ends := bytes.Cut(rest, end)
	if !begins || !ends {
		return nil, fmt.Errorf("marks %q and %q not found; expected the tables between them", begin, end)
	}
	return bytes.Join([][]byte{head, begin, []byte(text), end, tail}, nil), nil
}

func mark(target, which string) []byte {
	return fmt.Appendf(nil, "<!-- written by %s: %s -->\n", target, which)
}
