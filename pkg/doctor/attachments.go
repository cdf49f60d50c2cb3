package doctor

import (
	"fmt"
	"time"

	"github.com/delegated-ipam/delegated-ipam/api/models"
)

// confirmed says since when the plugins have not been asked: what one has lost after
// that nobody knows yet.
func confirmed(all []*models.Attachment) string {
	held, never := 0, 0
	var oldest time.Time
	for _, a := range all {
		if a.State != models.AttachmentStateHeld {
			continue
		}
		held++
		switch {
		case a.Verified == nil:
			never++
		case oldest.IsZero() || time.Time(*a.Verified).Before(oldest):
			oldest = time.Time(*a.Verified)
		}
	}
	switch {
	case held == 0:
		return "none is held"
	case never > 0:
		return fmt.Sprintf("%d of %d held ones no plugin has confirmed since the sidecar started", never, held)
	}
	return fmt.Sprintf("each of %d held ones was confirmed by its plugin, none before %s", held, oldest.UTC().Format(time.RFC3339))
}

// attachments is what the sidecar itself says is wrong with what it holds. For a
// plugin whose files are not known there is nothing else to go by: CHECK is not asked
// here, because it needs what the journal has recorded, and with some plugins it
// changes what they hold (docs/plugins.md, Which plugin works how).
func (s Sight) attachments() []Finding {
	var all []Finding
	add := func(state State, pool, do, format string, args ...any) {
		all = append(all, Finding{Check: CheckAttachments, Pool: pool, State: state, Seen: fmt.Sprintf(format, args...), Do: do})
	}
	for _, a := range s.After {
		switch {
		case a.Lost:
			add(Error, a.Pool, "allocate for the owner: it gets its address anew, or another one",
				"owner %q (container ID %s): the plugin says that it does not hold its addresses any more", a.Owner, a.ContainerID)
		case a.LastError != "" && (a.State == models.AttachmentStateReleasing || a.State == models.AttachmentStateAdding):
			add(Warning, a.Pool, "mend what it names; the sidecar tries again by itself",
				"owner %q (container ID %s) is %s: %s", a.Owner, a.ContainerID, a.State, a.LastError)
		}
	}
	for _, q := range s.Status.Quarantined {
		add(Warning, "", "look at the file; what its owner holds shows as leases that are not listed, or is found when the owner asks again",
			"record %s cannot be used: %s", q.File, q.Reason)
	}
	if len(all) == 0 && s.ListErr == nil {
		add(OK, "", "", "none of %d is lost, waits for the plugin or could not be read; %s", len(s.After), confirmed(s.After))
	}
	return all
}
