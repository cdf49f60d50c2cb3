package engine

import (
	"cmp"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// bareCode is the profile of a plugin whose CHECK was once believed by its code alone, as records of
// that time have it.
func bareCode(lost profile.Lost) profile.Profile {
	p := pluginProfile("unknown")
	p.VerifyBy, p.CheckProves, p.Lost = profile.VerifyCheck, profile.ProvesPresence, lost
	return p
}

// An outage of a plugin's server is not evidence of loss.
func TestOutage(t *testing.T) {
	for name, p := range map[string]profile.Profile{
		"no profile":             pluginProfile("unknown"),
		"old record of a code":   bareCode(profile.Lost{Codes: []uint{999}}),
		"old record, no profile": bareCode(profile.Lost{}),
		"message":                checked(),
	} {
		run(t, name, with(withProfile(p), ipv4Only), func(f *fixture) {
			f.allocate("health")
			f.inject(always(outage, "CHECK", "DEL", "ADD"))
			_ = f.tryAllocate("health")
			f.node.kill(f.t, f.Engine)
			f.start() // during the outage
			_ = f.tryAllocate("health")
			f.sleep(time.Minute)
			f.inject(nil)
			f.sleep(time.Hour)
			f.wantCounts(counts{})
			f.wantHeld("health", "10.0.0.1")
			f.wantStoreAgrees()
		})
	}
}

// A loss is acted on only if the DEL of the attachment succeeds.
func TestLossUnconfirmed(t *testing.T) {
	for _, injected := range []fault{outage, notStarted, timeoutBefore, timeoutAfter, timeoutLate} {
		run(t, "request: "+string(injected), with(withProfile(checked()), ipv4Only), func(f *fixture) {
			f.given("health")
			f.inject(each(map[string]fault{"CHECK": saysLost, "DEL": injected}))
			f.wantError(f.tryAllocate("health"), attachment.Failed, "health", "10.0.0.1", "DEL", "kept")
			f.wantSteps("CHECK, write held, DEL, write held")
			f.wantHeld("health", "10.0.0.1")
			acted := injected != outage && injected != notStarted
			if f.get("health").Lost != acted {
				f.t.Errorf("health is lost: %t; want %t", !acted, acted)
			}
			f.inject(nil)
			if !acted {
				f.wantCounts(counts{})
				f.allocate("health")
				f.wantSteps("CHECK")
			} else { // the DEL may still act
				f.wantError(f.tryAllocate("health"), attachment.Failed, "may still act")
				f.wantSteps("")
				f.restart()
				f.wantError(f.tryAllocate("health"), attachment.Failed, "may still act")
			}
			f.sleep(time.Hour)
			f.allocate("health")
			f.wantHeld("health", "10.0.0.1")
			f.wantStoreAgrees()
			f.release("10.0.0.1")
			f.sleep(time.Hour)
			f.wantGone()
		})
	}
	for name, s := range map[string]setup{"acts late": checkedPlugin, "ends with its process": ipv4Only} {
		for _, at := range []fault{killBefore, killAfter} {
			run(t, string(at)+" the DEL, which "+name, with(s), func(f *fixture) {
				f.allocate("health")
				f.inject(each(map[string]fault{"CHECK": saysLost, "DEL": at}))
				_ = f.tryAllocate("health")
				f.node.kill(f.t, f.Engine)
				f.inject(always(outage, "CHECK", "DEL", "ADD"))
				f.start() // during the outage
				f.wantError(f.tryAllocate("health"), attachment.Failed)
				f.sleep(time.Minute)
				f.wantHeld("health", "10.0.0.1")
				if !f.get("health").Lost {
					f.t.Error("health is not verified, and not lost")
				}
				f.inject(nil)
				f.sleep(time.Hour)
				if at == killBefore {
					f.wantCounts(counts{attachment.EventLost: 1, attachment.EventReacquired: 1})
					f.wantStored(1)
				} else {
					f.allocate("health")
				}
				f.restart(s)
				f.wantCounts(counts{})
				f.allocate("health")
				f.wantHeld("health", "10.0.0.1")
				f.wantStoreAgrees()
			})
		}
	}
	run(t, "killed, and the DEL acts late", with(checkedPlugin), func(f *fixture) {
		f.allocate("health")
		writes := nth(2, "write held", killBefore)
		f.inject(func(step string) fault {
			return cmp.Or(map[string]fault{"CHECK": saysLost, "DEL": timeoutLate}[step], writes(step))
		})
		_ = f.tryAllocate("health")
		f.sleep(lateCall / 2)
		f.restart(checkedPlugin)
		f.wantError(f.tryAllocate("health"), attachment.Failed, "may still act") // CHECK would succeed
		f.sleep(time.Hour)
		f.allocate("health")
		f.wantStoreAgrees()
		f.wantStored(1)
	})
	run(t, "in the background", with(ipv4Only), func(f *fixture) {
		f.allocate("health")
		f.inject(each(map[string]fault{"CHECK": saysLost, "DEL": outage}))
		f.node.kill(f.t, f.Engine)
		f.start()
		f.sleep(time.Minute)
		f.wantHeld("health", "10.0.0.1")
		f.inject(nil)
		f.sleep(time.Hour)
		if a := f.get("health"); a.Lost || a.LastError != "" {
			f.t.Errorf("health is %+v", a)
		}
		f.wantStoreAgrees()
	})
	run(t, "during the release delay", with(ipv4Only, releaseDelay(time.Minute)), func(f *fixture) {
		f.allocate("health")
		f.release("10.0.0.1")
		f.inject(each(map[string]fault{"CHECK": saysLost, "DEL": outage}))
		f.wantError(f.tryAllocate("health"), attachment.Failed, "kept")
		f.inject(nil)
		f.sleep(2 * time.Minute)
		f.wantNone()
	})
	run(t, "failed write", with(ipv4Only), func(f *fixture) {
		f.allocate("health")
		f.inject(each(map[string]fault{"CHECK": saysLost, "DEL": outage, "write held": writeFailed}))
		f.wantError(f.tryAllocate("health"), attachment.Failed, "journal")
		f.inject(nil)
		f.sleep(time.Hour)
		f.wantHeld("health", "10.0.0.1")
		f.wantStoreAgrees()
	})
	run(t, "configuration changed", with(ipv4Only), func(f *fixture) { // today's DEL frees the address, too
		f.allocate("health")
		f.clearStore()
		f.node.cniVersion = "1.0.0"
		f.inject(once("DEL", outage))
		f.allocate("health")
		f.wantHeld("health", "10.0.0.1")
	})
	// It proves nothing, and no ID is used again.
	run(t, "queued DEL", with(withProfile(singleUseIDs()), ipv4Only), func(f *fixture) {
		f.allocate("router")
		f.clearStore()
		f.inject(once("DEL", timeoutBefore))
		f.allocate("router")
		f.wantStoreAgrees()
	})
}
