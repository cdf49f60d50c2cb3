package nodecheck

import (
	"fmt"
	"strings"
	"time"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/doctor/check"
)

// Attachments checks that no attachment is lost, outside the ranges or blocked by its plugin, and that no
// record is in quarantine. It relies on the report of the sidecar: CHECK needs the recorded
// invocation, and with some plugins it changes their allocations (docs/reference/plugin-behaviour.md,
// Verbs).
var Attachments = check.Check{Name: "attachments", Run: attachments}

func attachments(o *check.Observations) []check.Finding {
	if o.Status == nil {
		return nil
	}
	var all []check.Finding
	for _, a := range o.After {
		switch {
		case a.Lost:
			all = append(all, check.Fail("allocate for the owner, which gets its addresses again, or others",
				"the plugin no longer holds the addresses of owner %q (container ID %s)", a.Owner, a.ContainerID).OfPool(a.Pool))
		case a.Range == models.AttachmentRangeOutside && !a.Excluded:
			remedy := "restart the owner, which gets another address"
			if strings.HasPrefix(a.Owner, "ciliumnode-") {
				remedy = "recreate the pods that use it: the bridge releases it when they are gone"
			}
			all = append(all, check.Fail(remedy+" (docs/install/ranges.md, Addresses outside the ranges)",
				"owner %q has %s outside the ranges of the present configuration; another node may have it", a.Owner, addresses(a)).OfPool(a.Pool))
		case a.LastError != "" && (a.State == models.AttachmentStateReleasing || a.State == models.AttachmentStateAdding):
			all = append(all, check.Warn("fix the cause; the sidecar retries automatically. If the plugin refuses forever: `delegated-ipam release --discard OWNER --yes`",
				"the attachment of owner %q (container ID %s) is %s: %s", a.Owner, a.ContainerID, a.State, a.LastError).OfPool(a.Pool))
		}
	}
	for _, q := range o.Status.Quarantined {
		all = append(all, check.Warn("inspect the file; the addresses of its owner are leases that are not listed, or are found when the owner requests them again",
			"record %s is unusable: %s", q.File, q.Reason))
	}
	if len(all) == 0 && o.ListErr == nil {
		all = append(all, check.Pass("none of %d attachments is lost, outside the ranges, blocked by the plugin or unreadable; %s", len(o.After), lastVerified(o.After)))
	}
	return all
}

// addresses returns the addresses of an attachment as text.
func addresses(a *models.Attachment) string {
	var ips []string
	for _, at := range a.Addresses {
		ips = append(ips, at.IP)
	}
	return strings.Join(ips, " and ")
}

// lastVerified describes when held attachments were last verified: a later loss is still
// unknown.
func lastVerified(list []*models.Attachment) string {
	held, never := 0, 0
	var oldest time.Time
	for _, a := range list {
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
		return fmt.Sprintf("%d of %d held ones were not verified since the sidecar started", never, held)
	}
	return fmt.Sprintf("%d held ones were verified, none before %s", held, oldest.UTC().Format(time.RFC3339))
}
