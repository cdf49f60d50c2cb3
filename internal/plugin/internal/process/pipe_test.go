package process

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

func TestBoundedBuffer(t *testing.T) {
	for name, c := range map[string]struct {
		keepTail bool
		writes   []string
		want     string
		err      error
	}{
		"up to the limit":          {false, []string{"abc", "de"}, "abcde", nil},
		"over it in two writes":    {false, []string{"abc", "def"}, "abc", errTooMuchOutput},
		"over it in one write":     {false, []string{"abcdef"}, "", errTooMuchOutput},
		"tail up to the limit":     {true, []string{"abc", "de"}, "abcde", nil},
		"tail of three writes":     {true, []string{"abc", "def", "g"}, "cdefg", nil},
		"tail of one larger write": {true, []string{"abcdefgh"}, "defgh", nil},
	} {
		t.Run(name, func(t *testing.T) {
			b := boundedBuffer{limit: 5, keepTail: c.keepTail}
			var err error
			for _, w := range c.writes {
				err = b.add([]byte(w))
			}
			if string(b.bytes) != c.want || !errors.Is(err, c.err) {
				t.Errorf("got %q and %v, want %q and %v", b.bytes, err, c.want, c.err)
			}
		})
	}
}

// A plugin that prints much must not wait for us at each piece of it.
func TestLargeOutputInFewReads(t *testing.T) {
	p, err := newPipeReader(boundedBuffer{limit: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	if _, err := unix.Write(p.w, make([]byte, pipeSize)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{readSize, pipeSize - readSize} {
		if n, err := p.read(pipeSize); n != want || err != nil {
			t.Errorf("read %d bytes, %v; want %d", n, err, want)
		}
	}
}
