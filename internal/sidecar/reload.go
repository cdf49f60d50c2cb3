package sidecar

import "context"

// reloads reads the configuration again at each signal, and then calls report, until ctx ends.
func (a *app) reloads(ctx context.Context, report func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.config.Hangups:
		}
		a.log.Info("SIGHUP: reading the configuration again")
		if a.config.Reread != nil {
			settings := a.config.Reread()
			a.settings.Store(&settings)
		}
		// They are read for each use anyway; here an error is logged before the next use.
		if _, err := a.config.PluginOptions().Profiles(); err != nil {
			a.log.WithError(err).Error("SIGHUP: a plugin profile is invalid; no new addresses are allocated until it is fixed")
		}
		a.conf.Reload()
		report()
	}
}
