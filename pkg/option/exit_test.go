package option

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/spf13/cobra"
)

func TestTheExitStatusFollowsFromTheError(t *testing.T) {
	for name, tt := range map[string]struct {
		err  error
		want int
	}{
		"none":                 {nil, Done},
		"a failure":            {errors.New("no"), Failed},
		"wrong usage":          {WrongUsage("no"), Usage},
		"a status of its own":  {fmt.Errorf("around: %w", &Status{Code: 7, Err: errors.New("no")}), 7},
		"wrong usage in front": {&Status{Code: 7, Err: WrongUsage("no")}, Usage},
	} {
		t.Run(name, func(t *testing.T) {
			root := &cobra.Command{Use: "x", RunE: func(*cobra.Command, []string) error { return tt.err }, SilenceErrors: true, SilenceUsage: true}
			if got := Execute(t.Context(), root, nil, io.Discard, io.Discard); got != tt.want {
				t.Errorf("ended with %d; want %d", got, tt.want)
			}
		})
	}
}
