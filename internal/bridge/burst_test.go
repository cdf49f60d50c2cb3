package bridge

import (
	"math/rand/v2"
	"testing"
	"time"
)

// Pods start and end all the time.
func TestChurn(t *testing.T) {
	f := newFixture()
	f.latency, f.apiLatency, f.watchesPods = 20*time.Millisecond, 10*time.Millisecond, true
	runController(t, f, defaultSettings(), func(t *testing.T, _ *metrics) {
		advance(10 * time.Second)
		a := startAgent(t.Context(), f, 15*time.Second)
		defer a.stop()
		random := rand.New(rand.NewPCG(1, 2))
		add := func(d time.Duration) (pods int) {
			for end := time.Now().Add(d); time.Now().Before(end); pods++ {
				a.addPod(time.Duration(random.ExpFloat64() * float64(time.Minute)))
				advance(time.Duration(random.ExpFloat64() * float64(2*time.Second)))
			}
			return pods
		}
		add(10 * time.Minute)
		before := f.count(&f.patches) + f.count(&f.gets)
		pods := add(time.Hour)
		requests := f.count(&f.patches) + f.count(&f.gets) - before
		between(t, "requests for each pod", float64(requests)/float64(pods), 0, 0.3)
		between(t, "failed ADDs", len(a.failures), 0, 0)
	})
}
