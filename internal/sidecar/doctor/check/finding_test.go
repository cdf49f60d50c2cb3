package check

import (
	"slices"
	"testing"
)

func TestWorst(t *testing.T) {
	for name, tt := range map[string]struct {
		states []State
		want   State
	}{
		"none":        {nil, OK},
		"all ok":      {[]State{OK, OK}, OK},
		"warning":     {[]State{OK, Warning, OK}, Warning},
		"error first": {[]State{Error, Warning, OK}, Error},
		"error last":  {[]State{OK, Warning, Error}, Error},
	} {
		t.Run(name, func(t *testing.T) {
			var all []Finding
			for _, s := range tt.states {
				all = append(all, Finding{State: s})
			}
			if got := Worst(all); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestRun(t *testing.T) {
	returns := func(f ...Finding) func(*Observations) []Finding {
		return func(*Observations) []Finding { return f }
	}
	got := Run([]Check{
		{"first", returns(Pass("%d", 1), Warn("fix", "two").OfPool("blue"))},
		{"second", returns()},
		{"third", returns(Fail("fix", "three"))},
	}, nil)
	want := []Finding{
		{Check: "first", State: OK, Message: "1"},
		{Check: "first", State: Warning, Pool: "blue", Message: "two", Remedy: "fix"},
		{Check: "third", State: Error, Message: "three", Remedy: "fix"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v; want %+v", got, want)
	}
}
