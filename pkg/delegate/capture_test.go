package delegate

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

func TestOfTooMuchOutputTheLastIsKeptOrNoneIsTaken(t *testing.T) {
	for name, c := range map[string]struct {
		last bool
		said []string
		want string
		err  error
	}{
		"as much as there may be":        {false, []string{"abc", "de"}, "abcde", nil},
		"more in several parts":          {false, []string{"abc", "def"}, "abc", errTooMuch},
		"more at once":                   {false, []string{"abcdef"}, "", errTooMuch},
		"the last, as much as there may": {true, []string{"abc", "de"}, "abcde", nil},
		"the last of several parts":      {true, []string{"abc", "def", "g"}, "cdefg", nil},
		"the last of one part":           {true, []string{"abcdefgh"}, "defgh", nil},
	} {
		k := kept{limit: 5, last: c.last}
		var err error
		for _, s := range c.said {
			err = k.keep([]byte(s))
		}
		if string(k.bytes) != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: got %q and %v, want %q and %v", name, k.bytes, err, c.want, c.err)
		}
	}
}

// A plugin that prints much must not wait for us at each piece of it.
func TestMuchOutputIsReadInFewPieces(t *testing.T) {
	c, err := newCapture(kept{limit: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	if _, err := unix.Write(c.w, make([]byte, full)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{chunk, full - chunk} {
		if n, err := c.read(full); n != want || err != nil {
			t.Errorf("read %d bytes, %v; want %d", n, err, want)
		}
	}
}
