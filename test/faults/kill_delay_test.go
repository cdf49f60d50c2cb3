package faults

import (
	"math/rand/v2"
	"testing"
)

// afterDelay stands for a system call where none can be chosen.
const afterDelay = "after"

const (
	// longestDelay is about how long host-local runs, in microseconds.
	longestDelay = 8_000
	// delays is how many of them each plugin call is killed after.
	delays = 6
)

// delayed makes up a death of a plugin that cannot be traced.
func delayed(source *rand.Rand, verb string) pluginDeath {
	return pluginDeath{verb, afterDelay, 1 + source.IntN(longestDelay)}
}

// delayedDeaths are those that the seed draws for a plugin call.
func delayedDeaths(t *testing.T, verb string) []pluginDeath {
	t.Helper()
	source := rand.New(rand.NewPCG(seed(t), 0))
	deaths := make([]pluginDeath, delays)
	for i := range deaths {
		deaths[i] = delayed(source, verb)
	}
	return deaths
}

// sooner is the death for the next try after a plugin has escaped this one.
func (d pluginDeath) sooner() pluginDeath {
	if d.call == afterDelay {
		d.nth /= 2
	}
	return d
}
