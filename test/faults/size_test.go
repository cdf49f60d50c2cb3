package faults

import (
	"os"
	"slices"
	"strconv"
	"testing"
)

const (
	// envSize is the size of the campaign: "every", "full", or a sample if it is not set.
	envSize = "DELEGATED_IPAM_FAULTS"
	// envSeed is the seed of everything random. It determines the cases, but not the order of
	// concurrent events.
	envSeed = "DELEGATED_IPAM_FAULTS_SEED"

	fixedSeed = 1
)

// campaignSize is the number of cases in the campaign.
type campaignSize string

const (
	// sample is one of sampleEach combinations, and the first one of each kind.
	sample campaignSize = ""
	// every is each combination once.
	every campaignSize = "every"
	// full is each combination once, and many at random.
	full campaignSize = "full"

	sampleEach = 16
)

// sizeFromEnv returns the size that the environment sets.
func sizeFromEnv(t *testing.T) campaignSize {
	t.Helper()
	s := campaignSize(os.Getenv(envSize))
	if s != sample && s != every && s != full {
		t.Fatalf("$%s is %q; expected nothing, %q or %q", envSize, s, every, full)
	}
	return s
}

// of returns the number of random cases of a size.
func (s campaignSize) of(inSample, inFull int) int {
	if s == full {
		return inFull
	}
	return inSample
}

// selectCases returns the cases of a size; a sample has the first case of each kind.
func selectCases[T any](s campaignSize, all []T, kind func(T) string) []T {
	if s != sample {
		return all
	}
	var selected []T
	seen := map[string]bool{}
	for i, c := range all {
		k := kind(c)
		if i%sampleEach == 0 || !seen[k] {
			selected = append(selected, c)
		}
		seen[k] = true
	}
	return selected
}

// seed returns the seed from the environment, and logs it for the reproduction of a failure.
func seed(t *testing.T) uint64 {
	t.Helper()
	text := os.Getenv(envSeed)
	if text == "" {
		return fixedSeed
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("$%s is %q; expected a number", envSeed, text)
	}
	t.Logf("%s=%d", envSeed, n)
	return n
}

func TestSample(t *testing.T) {
	t.Parallel()
	all := make([]int, 3*sampleEach)
	for i := range all {
		all[i] = i
	}
	kind := func(i int) string { return strconv.FormatBool(i == 5) }
	if got := selectCases(every, all, kind); len(got) != len(all) {
		t.Errorf("of %d every has %d", len(all), len(got))
	}
	got := selectCases(sample, all, kind)
	if want := []int{0, 5, sampleEach, 2 * sampleEach}; !slices.Equal(got, want) {
		t.Errorf("the sample is %v; want %v", got, want)
	}
}
