package output

import (
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
