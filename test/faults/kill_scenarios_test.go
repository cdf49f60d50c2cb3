package faults

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// scenario is a sequence of events in which the daemon is killed.
type scenario struct {
	name string
	// network defaults to a dual-stack one.
	network harness.Network
	flags   []string
	// endsEmpty means that no attachment remains at the end, wherever the daemon is killed.
	endsEmpty bool
	// prepare establishes the state in which the scenario begins.
	prepare func(*fixture)
	// act is the part in which the daemon is killed. It returns early after a kill.
	act func(*fixture)
}

func scenarios() []scenario {
	return slices.Concat(requestScenarios(), startScenarios(), []scenario{{
		name:    concurrent,
		prepare: func(f *fixture) { f.start(); f.send(allocation("health", "")) },
		act: func(f *fixture) {
			requests := []request{restore("10.15.0.77", "default/other")}
			for _, owner := range []string{"router", "ingress", "default/pod"} {
				requests = append(requests, allocation(owner, ""))
			}
			for _, ip := range f.history.Addresses("health") {
				requests = append(requests, release(ip, "health"))
			}
			f.send(requests...)
		},
	}})
}

const (
	// newOwner is the scenario in whose recovery every visit is a case.
	newOwner = "allocate for a new owner"
	// concurrent is a scenario whose kills differ between runs, even with the same plan.
	concurrent = "concurrent requests"
)

// requestScenarios are the scenarios of requests to a running daemon.
func requestScenarios() []scenario {
	send := func(r request) func(*fixture) { return func(f *fixture) { f.send(r) } }
	router, expiring, refused := allocation("router", ""), allocation("router", ""), allocation("health", "")
	expiring.header, refused.wantStatus = []string{"expiration", "true"}, []int{http.StatusBadGateway}
	oneAddress := harness.Network{Name: "pods", CNIVersion: "1.0.0", Subnets: []string{"10.15.0.0/30"}}
	alwaysVerify := []string{"--verify-interval=0s"}
	return []scenario{
		{name: newOwner, prepare: start, act: send(router)},
		{name: "allocate again, verified", flags: alwaysVerify, prepare: allocateRouter, act: send(router)},
		{name: "allocate the second family", prepare: func(f *fixture) { f.start(); f.send(allocation("router", "ipv4")) }, act: send(allocation("router", "ipv6"))},
		{name: "allocate a lost address", flags: alwaysVerify, prepare: func(f *fixture) { allocateRouter(f); f.node.WipeStore(f.t) }, act: send(router)},
		{name: "allocate from a full range", flags: []string{"--enable-ipv6=false"}, network: oneAddress, prepare: allocateRouter, act: send(refused)},
		{name: "allocate in cooldown", flags: []string{"--release-delay=1h"}, prepare: func(f *fixture) { allocateRouter(f); f.releaseAll("router") }, act: send(router)},
		{name: "restore", prepare: start, act: send(restore("10.15.0.77", "router"))},
		{name: "restore again, verified", flags: alwaysVerify, prepare: func(f *fixture) { f.start(); f.send(restore("10.15.0.77", "router")) }, act: send(restore("10.15.0.77", "router"))},
		{name: "restore both families", prepare: start, act: func(f *fixture) {
			f.send(restoreBoth("10.15.0.77", "fd00:15::88", "router"))
			f.send(restoreBoth("fd00:15::88", "10.15.0.77", "router"))
		}},
		{name: "allocate beside an excluded address", flags: []string{excludeFirst}, prepare: start, act: send(router)},
		{name: "release", prepare: allocateRouter, act: func(f *fixture) { f.releaseAll("router") }},
		{name: "release with delay", flags: []string{"--release-delay=1h"}, prepare: allocateRouter, act: func(f *fixture) { f.releaseAll("router") }},
		{name: "end of release delay", flags: []string{"--release-delay=1ms"}, endsEmpty: true, prepare: allocateRouter, act: func(f *fixture) { f.releaseAll("router") }},
		{name: "expiration", flags: []string{"--ipam-expiration=1ms"}, endsEmpty: true, prepare: start, act: send(expiring)},
	}
}

// startScenarios are the scenarios of a start with the state of a previous run.
func startScenarios() []scenario {
	restart := func(f *fixture) { f.start(); f.send(allocation("router", "")) }
	return []scenario{
		{name: "first start", prepare: func(f *fixture) { f.node.StateDir = filepath.Join(f.node.Dir, "var", "state") }, act: start},
		{name: "first start in a directory of mode 0755", prepare: func(f *fixture) { check.Must(f.t, os.Mkdir(f.node.StateDir, 0o755)) }, act: start},
		{name: "start with an attachment", prepare: func(f *fixture) { allocateRouter(f); f.kill() }, act: restart},
		{name: "start with a lost address", prepare: func(f *fixture) { allocateRouter(f); f.kill(); f.node.WipeStore(f.t) }, act: restart},
		{name: "start after a reboot", prepare: func(f *fixture) { allocateRouter(f); f.kill(); f.node.Reboot(f.t) }, act: restart},
		{name: "start after a reboot with a lost address", prepare: func(f *fixture) { allocateRouter(f); f.kill(); f.node.Reboot(f.t); f.node.WipeStore(f.t) }, act: restart},
		{name: "start with a damaged record", prepare: damageRecord, act: restart},
		{name: "start with a damaged journal", prepare: damageJournal, act: restart},
		{name: "start with an unfinished journal", prepare: leaveUnfinished, act: restart},
		{name: "start that retires an owner", endsEmpty: true, prepare: retireRouter, act: start},
	}
}

func start(f *fixture) { f.start() }

// excludeFirst excludes the first address that the plugin returns.
const excludeFirst = "--exclude-addresses=10.15.0.2"

// allocateRouter starts a daemon and allocates for the owner "router".
func allocateRouter(f *fixture) {
	f.start()
	f.send(allocation("router", ""))
}

// damageRecord leaves a record with unknown addresses, until its owner allocates again.
func damageRecord(f *fixture) {
	allocateRouter(f)
	id := f.daemon.Attachment(f.t, "router").ContainerID
	f.kill()
	f.node.DamageRecord(f.t, "default", "router")
	f.history.ForgetRecord("router", id)
}

// damageJournal leaves a file that is quarantined as a whole.
func damageJournal(f *fixture) {
	allocateRouter(f)
	id := f.daemon.Attachment(f.t, "router").ContainerID
	f.kill()
	check.Must(f.t, os.Truncate(journalFile(f.node), 5000))
	f.history.ForgetRecord("router", id)
}

// leaveUnfinished leaves the file of an interrupted start.
func leaveUnfinished(f *fixture) {
	allocateRouter(f)
	f.kill()
	f.leaveUnfinished()
}

// retireRouter leaves an owner that the next daemon no longer admits.
func retireRouter(f *fixture) {
	allocateRouter(f)
	f.kill()
	f.flags = append(f.flags, "--owners=health", "--retire-owners")
	f.history.Released("router", f.history.Addresses("router")...)
}
