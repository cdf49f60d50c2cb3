package doctor

import (
	"strings"

	"github.com/delegated-ipam/delegated-ipam/api/models"
)

// checkAttachments checks that no attachment is lost, outside the ranges or blocked by its plugin, and
// that no record is in quarantine. It relies on the report of the daemon: CHECK needs the recorded
// invocation, and with some plugins it changes their allocations (docs/reference/plugins.md, What
// to configure).
func checkAttachments(o *Observations, r *report) {
	for _, a := range o.After {
		r.pool = a.Pool
		checkAttachment(a, r)
	}
	r.pool = ""
	for _, q := range o.Status.Quarantined {
		r.warn("inspect the file; the addresses of its owner are leases that are not listed, or are found when the owner requests them again",
			"record %s is unusable: %s", q.File, q.Reason)
	}
	if r.clean() && o.ListErr == nil {
		r.ok("none of %d attachments is lost, outside the ranges, blocked by the plugin or unreadable", len(o.After))
	}
}

func checkAttachment(a *models.Attachment, r *report) {
	switch {
	case a.Lost:
		r.fail("allocate for the owner, which gets its addresses again, or others",
			"the plugin no longer holds the addresses of owner %q (container ID %s)", a.Owner, a.ContainerID).Owner = a.Owner
	case a.Range == models.AttachmentRangeOutside:
		remedy := "restart the owner, which gets another address"
		if strings.HasPrefix(a.Owner, "ciliumnode-") {
			remedy = "recreate the pods that use it: the bridge releases it when they are gone"
		}
		var ips []string
		for _, at := range a.Addresses {
			ips = append(ips, at.IP)
		}
		r.fail(remedy+" (docs/install/ranges.md, Addresses outside the ranges)",
			"owner %q has %s outside the ranges of the present configuration; another node may have it", a.Owner, strings.Join(ips, " and ")).Owner = a.Owner
	case a.LastError != "" && (a.State == models.AttachmentStateReleasing || a.State == models.AttachmentStateAdding):
		r.warn("fix the cause; the daemon retries automatically. If the plugin refuses forever: stop it and run `delegated-ipam journal delete OWNER --yes`",
			"the attachment of owner %q (container ID %s) is %s: %s", a.Owner, a.ContainerID, a.State, a.LastError).Owner = a.Owner
	}
}
