package faults

import (
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

const (
	// envSize is the size of the campaign: a sample of one of sampleEach combinations and the first of
	// each kind, each combination once, or also many at random.
	envSize             = "DELEGATED_IPAM_FAULTS"
	sample, every, full = "", "every", "full"
	sampleEach          = 16

	// envSeed is the seed of everything random but the order of concurrent events.
	envSeed = "DELEGATED_IPAM_FAULTS_SEED"
)

// size returns the size that the environment sets.
func size(t *testing.T) string {
	t.Helper()
	s := os.Getenv(envSize)
	if s != sample && s != every && s != full {
		t.Fatalf("$%s is %q; expected nothing, %q or %q", envSize, s, every, full)
	}
	return s
}

// sized returns the number of random cases.
func sized(t *testing.T, inSample, inFull int) int {
	t.Helper()
	if size(t) == full {
		return inFull
	}
	return inSample
}

// selectCases returns the cases of the size; a sample has the first case of each kind.
func selectCases[T any](t *testing.T, all []T, kind func(T) string) []T {
	t.Helper()
	if size(t) != sample {
		return all
	}
	var selected []T
	seen := map[string]bool{}
	for i, c := range all {
		if k := kind(c); i%sampleEach == 0 || !seen[k] {
			selected = append(selected, c)
			seen[k] = true
		}
	}
	return selected
}

func TestSample(t *testing.T) {
	all := make([]int, 3*sampleEach)
	for i := range all {
		all[i] = i
	}
	for size, want := range map[string][]int{every: all, sample: {0, 5, sampleEach, 2 * sampleEach}} {
		t.Setenv(envSize, size)
		if got := selectCases(t, all, func(i int) string { return strconv.FormatBool(i == 5) }); !slices.Equal(got, want) {
			t.Errorf("of size %q are %v; want %v", size, got, want)
		}
	}
}

// seed returns the seed from the environment, and logs it for the reproduction of a failure.
func seed(t *testing.T) uint64 {
	t.Helper()
	text := os.Getenv(envSeed)
	if text == "" {
		return 1
	}
	n, err := strconv.ParseUint(text, 10, 64)
	check.Must(t, err)
	t.Logf("%s=%d", envSeed, n)
	return n
}
