package main

// check is one run of the model.
type check struct {
	name string
	// flags are the definitions for spin: the plugin, the bounds, and the removed rules.
	flags []string
	// violated is the property of which the run must find a counterexample; empty for a run
	// that must find none.
	violated string
}

// The plugins. G is the number of generations of a container ID.
var (
	nodeLookup    = []string{"-DG=1", "-DSTORE=NODE", "-DREPEAT=REFUSED", "-DVERIFY=LOOKUP"}
	nodeCheck     = []string{"-DG=1", "-DSTORE=NODE", "-DREPEAT=REFUSED", "-DVERIFY=CHECK"}
	nodeRepeat    = []string{"-DG=1", "-DSTORE=NODE", "-DREPEAT=SAME", "-DVERIFY=CHECK"}
	remoteAnother = []string{"-DG=3", "-DSTORE=REMOTE", "-DREPEAT=ANOTHER", "-DVERIFY=NOTHING"}
	remoteSame    = []string{"-DG=3", "-DSTORE=REMOTE", "-DREPEAT=SAME", "-DVERIFY=CHECK"}
	remoteRefused = []string{"-DG=3", "-DSTORE=REMOTE", "-DREPEAT=REFUSED", "-DVERIFY=CHECK"}
	remoteQueued  = []string{"-DG=3", "-DSTORE=REMOTE", "-DREPEAT=SAME", "-DVERIFY=NOTHING", "-DQUEUED=1"}
)

// bounded adds bounds to a plugin: requests of the owners, and faults of any kind.
func bounded(plugin []string, calls, faults string) []string {
	return append(append([]string(nil), plugin...), "-DCALLS="+calls, "-DFAULTS="+faults)
}

// configurations returns the runs that must hold.
func configurations() []check {
	return []check{
		{"node, lookup", bounded(nodeLookup, "4", "3"), ""},
		{"node, CHECK, ADD refused if repeated", bounded(nodeCheck, "4", "3"), ""},
		{"node, CHECK, ADD repeatable", bounded(nodeRepeat, "4", "3"), ""},
		{"remote, ADD allocates again", bounded(remoteAnother, "4", "2"), ""},
		{"remote, ADD repeatable", bounded(remoteSame, "4", "2"), ""},
		{"remote, ADD repeatable, more faults", bounded(remoteSame, "3", "3"), ""},
		{"remote, ADD refused if repeated", bounded(remoteRefused, "4", "2"), ""},
		{"remote, ADD refused if repeated, more faults", bounded(remoteRefused, "3", "3"), ""},
		{"remote, DEL queued", bounded(remoteQueued, "4", "2"), ""},
		{"remote, DEL queued, more faults", bounded(remoteQueued, "3", "3"), ""},
	}
}

// mutants returns the runs that must fail: each lacks one rule (NO_…) or one assumption
// (DROP_…).
func mutants() []check {
	var all []check
	for _, m := range []struct {
		flag          string
		plugin        []string
		calls, faults string
		violated      string
	}{
		{"NO_ADDING", remoteAnother, "1", "1", "leaked"},
		{"NO_HELD", remoteAnother, "2", "1", "twoHolders"},
		{"NO_REWRITE", remoteAnother, "3", "2", "twoHolders"},
		{"NO_RELEASING", remoteAnother, "3", "1", "twoHolders"},
		{"NO_FIRST_DEL", remoteAnother, "2", "1", "leaked"},
		{"NO_ADOPT", nodeLookup, "2", "1", "twoHolders"},
		{"NO_LATE_ADD", remoteSame, "1", "1", "leaked"},
		{"NO_DEL_AFTER_DEADLINE", remoteSame, "1", "1", "leaked"},
		{"NO_LATE_DEL", remoteRefused, "1", "1", "twoHolders"},
		{"NO_TOMBSTONE", remoteSame, "3", "1", "twoHolders"},
		{"NO_IN_FLIGHT", remoteSame, "1", "1", "leaked"},
		{"NO_IN_FLIGHT_OLD_ID", remoteAnother, "3", "2", "twoHolders"},
		{"NO_IN_FLIGHT_REBOOT", remoteSame, "1", "1", "leaked"},
		{"NO_DEFINITE_NO", remoteAnother, "2", "1", "twoHolders"},
		{"NO_REBOOT_PROOF", nodeLookup, "4", "2", "twoHolders"},
		{"NO_REBOOT_PROOF", nodeCheck, "4", "2", "twoHolders"},
		{"NO_DUPLICATE", nodeLookup, "2", "1", "twoHolders"},
		{"NO_PROCESS_LOCK", nodeLookup, "1", "1", "leaked"},
		{"NO_WRITE_FIRST", remoteAnother, "2", "2", "twoHolders"},
		{"NO_RANDOM_ID", remoteQueued, "3", "2", "twoHolders"},
		{"NO_CAP", remoteSame, "1", "3", "leaked"},
		{"NO_LOOK_AGAIN", nodeLookup, "4", "0", "twoHolders"},
		{"DROP_SECONDS", remoteSame, "1", "1", "leaked"},
		{"DROP_CLOCK_AHEAD", remoteSame, "1", "3", "leaked"},
		{"DROP_STORE_KEPT", nodeLookup, "1", "1", "twoHolders"},
		{"DROP_STORE_KEPT", remoteSame, "1", "1", "twoHolders"},
		{"DROP_REBOOT_ENDS", nodeLookup, "1", "1", "twoHolders"},
		{"DROP_RESURRECTED", nodeLookup, "2", "2", "leaked"},
		{"DROP_UNIQUE", nodeLookup, "1", "1", "twoHolders"},
		{"DROP_LOST_QUIET", remoteSame, "1", "1", "leaked"},
		{"DROP_LOST_LEASES", nodeLookup, "1", "1", "leaked"},
		{"DROP_LOST_GENERATIONS", remoteAnother, "2", "2", "leaked"},
		{"DROP_LOST_GENERATIONS", remoteQueued, "2", "1", "leaked"},
		{"DROP_ASKS_AGAIN", remoteAnother, "2", "1", "twoHolders"},
		{"DROP_EXTRA", remoteAnother, "2", "1", "leaked"},
		{"DROP_EXTRA", nodeLookup, "3", "2", "leaked"},
	} {
		all = append(all, check{m.flag, append(bounded(m.plugin, m.calls, m.faults), "-D"+m.flag), m.violated})
	}
	return all
}
