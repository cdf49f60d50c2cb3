package faults

import (
	"os"
	"slices"
	"strconv"
	"testing"
)

const (
	// envShare says how much is played: a sample if it is not set, "every", or "full".
	envShare = "DELEGATED_IPAM_FAULTS"
	// envSeed is the number that everything random follows from. The same one plays
	// the same cases, in an order that the machine has a say in.
	envSeed = "DELEGATED_IPAM_FAULTS_SEED"

	fixedSeed = 1
)

// share is how much of the campaign is played.
type share string

const (
	// sample is one combination of sampleEach, and all that are the first of their kind.
	sample share = ""
	// every is each combination once.
	every share = "every"
	// full is each combination once, and many at random.
	full share = "full"

	sampleEach = 8
)

// wantedShare is how much the environment asks for.
func wantedShare(t *testing.T) share {
	t.Helper()
	s := share(os.Getenv(envShare))
	if s != sample && s != every && s != full {
		t.Fatalf("$%s is %q; expected nothing, %q or %q", envShare, s, every, full)
	}
	return s
}

// randomKills is how many cases are made up at random.
func (s share) randomKills() int {
	if s == full {
		return 2_000
	}
	return 20
}

// operations is how many all clients together send at once to one sidecar.
func (s share) operations() int {
	if s == full {
		return 20_000
	}
	return 500
}

// choose returns those of all combinations that a share has: also of the sample one of each kind.
func choose[T any](s share, all []T, kind func(T) string) []T {
	if s != sample {
		return all
	}
	var chosen []T
	met := map[string]bool{}
	for i, one := range all {
		k := kind(one)
		if i%sampleEach == 0 || !met[k] {
			chosen = append(chosen, one)
		}
		met[k] = true
	}
	return chosen
}

// seed is the number from the environment. It is told, so that a failure can be
// sought again.
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

func TestASampleHasOneOfEachKindAndOthersHaveEverything(t *testing.T) {
	t.Parallel()
	all := make([]int, 3*sampleEach)
	for i := range all {
		all[i] = i
	}
	kind := func(i int) string { return strconv.FormatBool(i == 5) }
	if got := choose(every, all, kind); len(got) != len(all) {
		t.Errorf("of %d every has %d", len(all), len(got))
	}
	got := choose(sample, all, kind)
	if want := []int{0, 5, sampleEach, 2 * sampleEach}; !slices.Equal(got, want) {
		t.Errorf("the sample is %v; want %v", got, want)
	}
}
