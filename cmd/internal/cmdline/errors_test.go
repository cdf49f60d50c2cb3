package cmdline

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/spf13/cobra"
)

func TestExitCode(t *testing.T) {
	for name, tt := range map[string]struct {
		err  error
		want int
	}{
		"no error":               {nil, ExitOK},
		"failure":                {errors.New("no"), ExitFailed},
		"usage error":            {Usagef("no"), ExitUsage},
		"separate code, wrapped": {fmt.Errorf("around: %w", &ExitError{Code: 7, Err: errors.New("no")}), 7},
	} {
		t.Run(name, func(t *testing.T) {
			root := &cobra.Command{Use: "x", RunE: func(*cobra.Command, []string) error { return tt.err }, SilenceErrors: true, SilenceUsage: true}
			if got := Execute(t.Context(), root, nil, io.Discard, io.Discard); got != tt.want {
				t.Errorf("exit code %d; want %d", got, tt.want)
			}
		})
	}
}
