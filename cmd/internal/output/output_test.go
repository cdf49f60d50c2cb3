package output

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Hour:                             "0s",
		999 * time.Millisecond:                 "0s",
		1500 * time.Millisecond:                "1s",
		59*time.Second + 999*time.Millisecond:  "59s",
		time.Minute:                            "1m",
		time.Minute + time.Second:              "1m1s",
		time.Hour + 59*time.Second:             "1h",
		23*time.Hour + 59*time.Minute:          "23h59m",
		24 * time.Hour:                         "1d",
		25*time.Hour + 30*time.Minute:          "1d1h",
		400*24*time.Hour + 23*time.Hour:        "400d23h",
		time.Hour - time.Nanosecond:            "59m59s",
		24*time.Hour - time.Nanosecond:         "23h59m",
		48*time.Hour + 59*time.Minute + 59*1e9: "2d",
	} {
		if got := Duration(d); got != want {
			t.Errorf("%s is printed as %s; want %s", d, got, want)
		}
	}
}

func TestNatural(t *testing.T) {
	want := strings.Fields("a a1 a01 a2 a10 a10b b-2-9 b-2-10 b-10-1 b- cni/1 cni/2")
	slices.SortFunc(want, strings.Compare)
	slices.SortFunc(want, Natural)
	if got := strings.Join(want, " "); got != "a a01 a1 a2 a10 a10b b- b-2-9 b-2-10 b-10-1 cni/1 cni/2" {
		t.Errorf("got %s", got)
	}
	for a, b := range map[string]string{"ciliumnode-2": "ciliumnode-10", "": "a", "9": "10", "99999999999999999998": "99999999999999999999", "1": "a"} {
		if Natural(a, b) >= 0 || Natural(b, a) <= 0 || Natural(a, a) != 0 {
			t.Errorf("%q is not before %q", a, b)
		}
	}
}

func TestMiddle(t *testing.T) {
	for text, want := range map[string]string{"": "", "12345678": "12345678", "123456789": "1234…789", "ähnlich kurz": "ähnl…urz"} {
		if got := Middle(text, 8); got != want {
			t.Errorf("%q becomes %q; want %q", text, got, want)
		}
	}
}

func TestWrap(t *testing.T) {
	for text, want := range map[string][]string{
		"": nil, "one": {"one"}, "one two three": {"one two", "three"}, "12345678 9": {"12345678", "9"},
		"a 123456789abcdefghi b": {"a", "12345678", "9abcdefg", "hi b"},
	} {
		if got := Wrap(text, 8); !slices.Equal(got, want) {
			t.Errorf("%q becomes %q; want %q", text, got, want)
		}
	}
}
