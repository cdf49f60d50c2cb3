package engine

import (
	"cmp"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/engine/protocol"
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
		run(t, name, func(t *testing.T) {
			f := newFixture(t, withProfile(p), ipv4Only)
			f.allocate("health")
			f.inject(always(outage, "CHECK", "DEL", "ADD"))
			_ = f.tryAllocate("health")
			f.node.kill(t, f.Engine)
			f.start() // during the outage
			_ = f.tryAllocate("health")
			f.sleep(time.Minute)
			f.inject(nil)
			f.sleep(time.Hour)
			f.wantCounters(Counters{})
			f.wantHeld("health", "10.0.0.1")
			f.wantStoreAgrees()
		})
	}
}

// A loss is acted on only if the DEL of the attachment succeeds.
func TestLossUnconfirmed(t *testing.T) {
	for _, injected := range []fault{outage, notStarted, timeoutBefore, timeoutAfter, timeoutLate} {
		run(t, "request: "+string(injected), func(t *testing.T) {
			f := newFixture(t, withProfile(checked()), ipv4Only)
			f.allocate("health")
			f.steps()
			f.inject(func(step string) fault { return map[string]fault{"CHECK": saysLost, "DEL": injected}[step] })
			f.wantError(f.tryAllocate("health"), protocol.Failed, "health", "10.0.0.1", "DEL", "kept")
			f.wantSteps("CHECK, write held, DEL, write held")
			f.wantHeld("health", "10.0.0.1")
			acted := injected != outage && injected != notStarted
			if f.get("health").Lost != acted {
				t.Errorf("health is lost: %t; want %t", !acted, acted)
			}
			f.inject(nil)
			if !acted {
				f.wantCounters(Counters{})
				f.allocate("health")
				f.wantSteps("CHECK")
			} else { // the DEL may still act
				f.wantError(f.tryAllocate("health"), protocol.Failed, "may still act")
				f.wantSteps("")
				f.restart()
				f.wantError(f.tryAllocate("health"), protocol.Failed, "may still act")
			}
			f.sleep(time.Hour)
			f.allocate("health")
			f.wantHeld("health", "10.0.0.1")
			f.wantStoreAgrees()
			f.release("10.0.0.1")
			f.sleep(time.Hour)
			f.wantNone()
			f.wantRecords(0)
		})
	}
	for name, s := range map[string]setup{"acts late": checkedPlugin, "ends with its process": ipv4Only} {
		for _, at := range []fault{killBefore, killAfter} {
			run(t, string(at)+" the DEL, which "+name, func(t *testing.T) {
				f := newFixture(t, s)
				f.allocate("health")
				f.inject(func(step string) fault { return map[string]fault{"CHECK": saysLost, "DEL": at}[step] })
				_ = f.tryAllocate("health")
				f.node.kill(t, f.Engine)
				f.inject(always(outage, "CHECK", "DEL", "ADD"))
				f.start() // during the outage
				f.wantError(f.tryAllocate("health"), protocol.Failed)
				f.sleep(time.Minute)
				f.wantHeld("health", "10.0.0.1")
				if !f.get("health").Lost {
					t.Error("health is not verified, and not lost")
				}
				f.inject(nil)
				f.sleep(time.Hour)
				if at == killBefore {
					f.wantCounters(Counters{Lost: 1, Reacquired: 1})
					f.wantStored(1)
				} else {
					f.allocate("health")
				}
				f.restart(s)
				f.wantCounters(Counters{})
				f.allocate("health")
				f.wantHeld("health", "10.0.0.1")
				f.wantStoreAgrees()
			})
		}
	}
	run(t, "killed, and the DEL acts late", func(t *testing.T) {
		f := newFixture(t, checkedPlugin)
		f.allocate("health")
		writes := nth(2, "write held", killBefore)
		f.inject(func(step string) fault {
			return cmp.Or(map[string]fault{"CHECK": saysLost, "DEL": timeoutLate}[step], writes(step))
		})
		_ = f.tryAllocate("health")
		f.sleep(lateCall / 2)
		f.restart(checkedPlugin)
		f.wantError(f.tryAllocate("health"), protocol.Failed, "may still act") // CHECK would succeed
		f.sleep(time.Hour)
		f.allocate("health")
		f.wantStoreAgrees()
		f.wantStored(1)
	})
	run(t, "background", func(t *testing.T) {
		f := newFixture(t, ipv4Only)
		f.allocate("health")
		f.inject(func(step string) fault { return map[string]fault{"CHECK": saysLost, "DEL": outage}[step] })
		f.node.kill(t, f.Engine)
		f.start()
		f.sleep(time.Minute)
		f.wantHeld("health", "10.0.0.1")
		f.inject(nil)
		f.sleep(time.Hour)
		if a := f.get("health"); a.Lost || a.LastError != "" {
			t.Errorf("health is %+v", a)
		}
		f.wantStoreAgrees()
	})
	run(t, "cooldown", func(t *testing.T) {
		f := newFixture(t, ipv4Only, releaseDelay(time.Minute))
		f.allocate("health")
		f.release("10.0.0.1")
		f.inject(func(step string) fault { return map[string]fault{"CHECK": saysLost, "DEL": outage}[step] })
		f.wantError(f.tryAllocate("health"), protocol.Failed, "kept")
		f.inject(nil)
		f.sleep(2 * time.Minute)
		f.wantNone()
	})
	run(t, "failed write", func(t *testing.T) {
		f := newFixture(t, ipv4Only)
		f.allocate("health")
		f.inject(func(step string) fault {
			return map[string]fault{"CHECK": saysLost, "DEL": outage, "write held": writeFailed}[step]
		})
		f.wantError(f.tryAllocate("health"), protocol.Failed, "journal")
		f.inject(nil)
		f.sleep(time.Hour)
		f.wantHeld("health", "10.0.0.1")
		f.wantStoreAgrees()
	})
	run(t, "configuration changed", func(t *testing.T) { // today's DEL frees the address, too
		f := newFixture(t, ipv4Only)
		f.allocate("health")
		f.clearStore()
		f.node.cniVersion = "1.0.0"
		f.inject(once("DEL", outage))
		f.allocate("health")
		f.wantHeld("health", "10.0.0.1")
	})
	run(t, "by a lookup", func(t *testing.T) { // the store itself was read
		f := newFixture(t, storeReadable)
		f.allocate("router")
		f.clearStore()
		f.steps()
		f.inject(once("DEL", outage))
		f.allocate("router")
		f.wantSteps("write adding, DEL, ADD[10.0.0.1 fd00::1], write held")
	})
	run(t, "queued DEL", func(t *testing.T) { // it proves nothing, and no ID is used again
		f := newFixture(t, withProfile(singleUseIDs()), ipv4Only)
		f.allocate("router")
		f.clearStore()
		f.inject(once("DEL", timeoutBefore))
		f.allocate("router")
		f.wantStoreAgrees()
	})
}
