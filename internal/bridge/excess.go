package bridge

import (
	"slices"
	"time"
)

// excessWindow is how many slots have been in excess, and for how long. Each entry is a number that has
// not been undercut since a time; both increase. So an excess that ends before the release delay is
// over costs no write.
type excessWindow []excess

type excess struct {
	slots int
	since time.Time
}

// observe records the present excess.
func (w *excessWindow) observe(slots int) {
	since := time.Now()
	for n := len(*w); n > 0 && (*w)[n-1].slots >= slots; n-- {
		since = (*w)[n-1].since
		*w = (*w)[:n-1]
	}
	if slots > 0 {
		*w = append(*w, excess{slots, since})
	}
}

// lasting returns how many slots have been in excess for a time.
func (w excessWindow) lasting(d time.Duration) int {
	for _, e := range slices.Backward(w) {
		if time.Since(e.since) >= d {
			return e.slots
		}
	}
	return 0
}
