package doctor

import (
	"fmt"
	"strings"
	"time"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/attachment"
)

// checkVerification checks that held attachments are verified by the method of the plugin's profile.
func checkVerification(o *Observations, r *report) {
	for _, p := range o.Status.Pools {
		if p.Verification == nil {
			continue
		}
		r.pool = p.Pool
		text := "held attachments are verified by " + p.Verification.By
		if p.Verification.Reason != "" {
			text += ": " + p.Verification.Reason
		}
		lookup, _ := p.ProfileFacts["lookup"].(string)
		if p.Verification.By == plugin.VerifyByLookup || lookup == "" || lookup == string(profile.LookupNone) {
			r.ok("%s", text)
			continue
		}
		r.warn("set ipam.dataDir to the directory in which the plugin keeps its addresses and restart the sidecar, or use a --plugin-profile whose lookup is none; until then each verification runs the plugin", "%s", text)
	}
}

// checkHeldPlugins checks that the plugins of recorded attachments exist, so that these can be
// verified and released.
func checkHeldPlugins(o *Observations, r *report) {
	for _, p := range o.Status.MovedPlugins {
		r.pool = p.Pool
		if p.Error != "" {
			r.fail("install the plugin again, or add its directory to --cni-bin-dir; until then none of its attachments is verified or released", "%s", p.Error)
			continue
		}
		r.ok("%s is not used any more; %s is used in its place", p.Binary, p.Executable)
	}
	if r.clean() {
		r.ok("the executables of all recorded attachments exist")
	}
}

// checkAttachments checks that no attachment is lost, outside the ranges or blocked by its plugin, and
// that no record is in quarantine. It relies on the report of the sidecar: CHECK needs the recorded
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
		r.ok("none of %d attachments is lost, outside the ranges, blocked by the plugin or unreadable; %s%s", len(o.After), lastVerified(o.After), ofPods(o.After))
	}
}

func checkAttachment(a *models.Attachment, r *report) {
	switch {
	case a.Lost:
		r.fail("allocate for the owner, which gets its addresses again, or others",
			"the plugin no longer holds the addresses of owner %q (container ID %s)", a.Owner, a.ContainerID)
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
			"owner %q has %s outside the ranges of the present configuration; another node may have it", a.Owner, strings.Join(ips, " and "))
	case a.LastError != "" && (a.State == models.AttachmentStateReleasing || a.State == models.AttachmentStateAdding):
		r.warn("fix the cause; the sidecar retries automatically. If the plugin refuses forever: stop it and run `delegated-ipam journal delete OWNER --yes`",
			"the attachment of owner %q (container ID %s) is %s: %s", a.Owner, a.ContainerID, a.State, a.LastError)
	}
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

// ofPods describes the attachments of pods; empty without one.
func ofPods(list []*models.Attachment) string {
	count, oldest := 0, time.Time{}
	for _, a := range list {
		if !attachment.OfContainer(a.Owner) {
			continue
		}
		if count++; count == 1 || time.Time(a.Created).Before(oldest) {
			oldest = time.Time(a.Created)
		}
	}
	if count == 0 {
		return ""
	}
	return fmt.Sprintf("; %d are of pods, the oldest from %s", count, oldest.UTC().Format(time.RFC3339))
}
