package doctor

import "time"

// spoolDelay is how long a DEL may stay in the spool of a daemon that runs.
const spoolDelay = time.Minute

// checkSpool checks that the DELs that runtimes could not deliver are carried out.
func checkSpool(o *Observations, r *report) {
	s := o.Status.Spool
	if s.Quarantined > 0 {
		r.warn("release the addresses of their containers by the plugin if it still holds them, then remove the files in "+s.Directory+"/quarantine",
			"%d files of the spool were moved aside, because they are damaged or of another origin", s.Quarantined)
	}
	if s.Pending > 0 && s.Oldest != nil && time.Since(time.Time(*s.Oldest)) > spoolDelay {
		r.warn("see the reason; the daemon repeats each DEL", "%d DELs of containers wait in %s, the oldest for %s: %s", s.Pending, s.Directory, time.Since(time.Time(*s.Oldest)).Round(time.Second), s.Error)
	} else if s.Error != "" {
		r.warn("see the reason; a DEL of a runtime fails while the daemon is away", "the spool: %s", s.Error)
	}
	if r.clean() {
		r.ok("%d DELs of containers wait in %s for less than %s", s.Pending, s.Directory, spoolDelay)
	}
}

// usesSpool reports whether there is something to know of the spool.
func usesSpool(o *Observations) bool {
	if o.Status == nil || o.Status.Spool == nil {
		return false
	}
	s := o.Status.Spool
	return s.Pending > 0 || s.Quarantined > 0 || s.Error != ""
}
