package faults

import (
	"os"
	"path/filepath"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// scenario is a piece of a sidecar's life in which it is killed.
type scenario struct {
	name string
	// network is a dual-stack one unless it says otherwise.
	network harness.Network
	flags   []string
	// endsEmpty tells that in the end nothing is held, whatever dies.
	endsEmpty bool
	// prepare brings the node to where the scenario begins.
	prepare func(*scene)
	// act is what the sidecar is killed in. It returns early when that is dead.
	act func(*scene)
}

// scenarios are all pieces of a sidecar's life.
func scenarios() []scenario {
	return append(requestScenarios(), startScenarios()...)
}

// requestScenarios are those in which a running sidecar is asked for something.
func requestScenarios() []scenario {
	asks := func(r request) func(*scene) { return func(s *scene) { s.send(r) } }
	router := allocation("router", "")
	eachTime := []string{"--verify-interval=0s"}
	return []scenario{
		{name: oneStart, prepare: started, act: asks(router)},
		{name: "allocate what is held, verified", flags: eachTime, prepare: holding, act: asks(router)},
		{name: "allocate the second family", prepare: func(s *scene) { s.start(); s.send(allocation("router", "ipv4")) }, act: asks(allocation("router", "ipv6"))},
		{name: "allocate what the plugin has lost", flags: eachTime, prepare: func(s *scene) { holding(s); s.node.WipeStore(s.t) }, act: asks(router)},
		{name: "allocate from a full range", flags: []string{"--enable-ipv6=false"}, network: fullWithOne(), prepare: holding, act: asks(refused("health"))},
		{name: "allocate what cools", flags: []string{"--release-delay=1h"}, prepare: func(s *scene) { holding(s); s.releaseAll("router") }, act: asks(router)},
		{name: "restore an address", prepare: started, act: asks(restoration("10.15.0.77", "router"))},
		{name: "restore what is held", flags: eachTime, prepare: func(s *scene) { s.start(); s.send(restoration("10.15.0.77", "router")) }, act: asks(restoration("10.15.0.77", "router"))},
		{name: "release", prepare: holding, act: func(s *scene) { s.releaseAll("router") }},
		{name: "release with a delay", flags: []string{"--release-delay=1h"}, prepare: holding, act: func(s *scene) { s.releaseAll("router") }},
		{name: "the end of a release delay", flags: []string{"--release-delay=1ms"}, endsEmpty: true, prepare: holding, act: func(s *scene) { s.releaseAll("router") }},
		{name: "expiry", flags: []string{"--ipam-expiration=1ms"}, endsEmpty: true, prepare: started, act: asks(expiring("router"))},
	}
}

// startScenarios are those in which a sidecar starts on what an earlier one left.
func startScenarios() []scenario {
	restart := func(s *scene) { s.start(); s.send(allocation("router", "")) }
	return []scenario{
		{name: "the first start", prepare: func(s *scene) { s.node.StateDir = filepath.Join(s.node.Dir, "var", "state") }, act: started},
		{name: "the first start on a folder open to others", prepare: makeOpenFolder, act: started},
		{name: "a start with what is held", prepare: func(s *scene) { holding(s); s.kill() }, act: restart},
		{name: "a start with what the plugin has lost", prepare: func(s *scene) { holding(s); s.kill(); s.node.WipeStore(s.t) }, act: restart},
		{name: "a start after a reboot", prepare: func(s *scene) { holding(s); s.kill(); reboots(s) }, act: restart},
		{name: "a start after a reboot with what the plugin has lost", prepare: func(s *scene) { holding(s); s.kill(); reboots(s); s.node.WipeStore(s.t) }, act: restart},
		{name: "a start with a damaged record", prepare: damaged, act: restart},
		{name: "a start with a file half written", prepare: halfWritten, act: restart},
		{name: "a start that retires an owner", endsEmpty: true, prepare: retired, act: started},
	}
}

func started(s *scene) { s.start() }

// holding leaves a running sidecar whose owner "router" holds addresses.
func holding(s *scene) {
	s.start()
	s.send(allocation("router", ""))
}

// fullWithOne is a network with one address.
func fullWithOne() harness.Network {
	return harness.Network{Name: "pods", CNIVersion: "1.0.0", Subnets: []string{"10.15.0.0/30"}}
}

// reboots lets the next sidecars start in another boot.
func reboots(s *scene) { s.node.ReplaceFile(s.t, harness.BootIDFile, anotherBoot) }

func makeOpenFolder(s *scene) {
	if err := os.Mkdir(s.node.StateDir, 0o755); err != nil {
		s.t.Fatal(err)
	}
}

// damaged leaves a record that cannot be read. What it held is known to nobody
// until its owner asks again.
func damaged(s *scene) {
	holding(s)
	id := s.sidecar.Attachment(s.t, "router").ContainerID
	s.kill()
	s.node.DamageRecord(s.t, id)
	s.history.Forget("router", id)
}

// halfWritten leaves the temporary file of a write that never came to its end.
func halfWritten(s *scene) {
	holding(s)
	s.kill()
	if err := os.WriteFile(filepath.Join(s.node.StateDir, "attachments", ".record.json123"), []byte("{"), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// retired leaves an owner that the next sidecar does not admit any more.
func retired(s *scene) {
	holding(s)
	s.kill()
	s.flags = append(s.flags, "--owners=health", "--retire-owners")
	s.history.Released("router", s.history.Has("router")...)
}
