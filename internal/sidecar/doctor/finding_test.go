package doctor

import (
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
