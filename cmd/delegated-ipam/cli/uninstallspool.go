package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/internal/spool"
)

// drainLimit limits the wait for the DELs in the spool: a failed one is repeated after 5, 10 and 20 s.
const drainLimit = time.Minute

// waitDrained waits until a daemon has carried out the DELs in its spool. Of those that are left after the
// limit the error has file, container interface and reason. Without a daemon that answers it succeeds: what
// removes the spool checks it again.
func (d dependencies) waitDrained(cmd *cobra.Command, c connection, limit time.Duration) error {
	begun := d.now()
	for reported := false; ; reported = true {
		status, err := c.health(cmd.Context())
		if err != nil {
			return nil //nolint:nilerr // none carries them out
		}
		s := status.DelegatedIpam.Spool
		if s == nil || s.Pending == 0 {
			return nil
		}
		left := fmt.Sprintf("%d DELs of containers wait in %s", s.Pending, s.Directory)
		switch {
		case d.now().Sub(begun) >= limit:
			return fmt.Errorf("%s after %s: %s; %s", left, limit, logging.OneLine(s.Error), spool.Remedy)
		case !reported:
			fmt.Fprintf(cmd.ErrOrStderr(), "%s; waiting for the daemon, which carries them out, at most %s\n", left, limit)
		}
		if err := d.untilPoll(cmd.Context()); err != nil {
			return err
		}
	}
}
