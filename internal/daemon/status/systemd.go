package status

import (
	"strings"

	"github.com/coreos/go-systemd/v22/daemon"
)

// Notify sends states to systemd if it waits for them (sd_notify(3), Type=notify).
func (r *Reporter) Notify(states ...string) {
	if _, err := daemon.SdNotify(false, strings.Join(states, "\n")); err != nil {
		r.Log.WithError(err).Warn("systemd cannot be notified")
	}
}
