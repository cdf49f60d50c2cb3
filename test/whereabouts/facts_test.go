package whereabouts

import (
	"slices"
	"testing"
)

// The first addresses of the ranges.
const (
	firstIP, secondIP = "10.15.0.1/24", "10.15.0.2/24"
	firstIPv6         = "fd00:15::1/112"
)

func dual(i invocation) invocation {
	i.subnets = []string{ipv4Range, ipv6Range}
	return i
}

// pluginCases execute the plugin without the daemon. With "profile try", which repeats ADD and calls CHECK, they
// are the evidence for the profile and for the section of whereabouts in docs/reference/plugins.md.
var pluginCases = cases{
	"ADD with another ID": func(t *testing.T, ns *namespace) {
		ns.mustRun(t, add("a1", podA), firstIP)
		ns.mustRun(t, add("a2", podA), firstIP) // the pod and the interface are the key
		ns.wantReserved(t, "10.15.0.1 a2 eth0")
		ns.mustRun(t, add("a2", podB), secondIP)
		ns.wantReserved(t, "10.15.0.1 a2 eth0", "10.15.0.2 a2 eth0")
	},
	"ADD of another interface": func(t *testing.T, ns *namespace) {
		other := add("a1", podA)
		other.ifName = "eth1"
		ns.mustRun(t, add("a1", podA), firstIP)
		ns.mustRun(t, other, secondIP)
		ns.wantReserved(t, "10.15.0.1 a1 eth0", "10.15.0.2 a1 eth1")
		// DEL does not compare the interface: it frees one reservation of the ID, whichever is first.
		ns.mustRun(t, del("a1", podA))
		if left := ns.mustReservations(t); len(left) != 1 {
			t.Errorf("the IPPools have %v; want one of two reservations", left)
		}
	},
	"ADD without pod name": func(t *testing.T, ns *namespace) {
		ns.mustFail(t, add("a1", ""), "no pod name")
		ns.wantReserved(t)
	},
	"ADD with IP=": func(t *testing.T, ns *namespace) {
		ns.mustRun(t, add("a1", podA+";IP=10.15.0.77/24"), firstIP, "10.15.0.77/24")
		ns.wantReserved(t, "10.15.0.1 a1 eth0") // not 10.15.0.77
		ns.mustFail(t, add("b1", podB+";IP=10.15.0.78"), "invalid CIDR")
		ns.wantReserved(t, "10.15.0.1 a1 eth0")
	},
	// The error of a forbidden update is overwritten by the success of the next request: ADD returns an
	// address for which only an OverlappingRangeIPReservation exists, and no DEL deletes that.
	"ADD, update forbidden": func(t *testing.T, ns *namespace) {
		ns.mustRun(t, add("a1", podA), firstIP) // creates the IPPool
		allow := forbidUpdates(ns, t, ipv4Range)
		ns.mustRun(t, add("b1", podB), secondIP)
		allow()
		ns.wantReserved(t, "10.15.0.1 a1 eth0")
		ns.mustRun(t, del("b1", podB))
		if got, want := ns.overlapping(t), []string{"10.15.0.1", "10.15.0.2"}; !slices.Equal(got, want) {
			t.Errorf("the OverlappingRangeIPReservations are %q; want %q", got, want)
		}
	},
	// Without OverlappingRangeIPReservations ADD reports a forbidden update of the last range only.
	// That of an earlier one is overwritten: two pods get the same address.
	"ADD, one of two forbidden": func(t *testing.T, ns *namespace) {
		separate := func(i invocation) invocation {
			i.ipam = map[string]any{"enable_overlapping_ranges": false}
			return dual(i)
		}
		ns.mustRun(t, separate(add("a1", podA)), firstIP, firstIPv6)
		ns.mustRun(t, separate(del("a1", podA)))

		allow := forbidUpdates(ns, t, ipv6Range)
		ns.mustFail(t, separate(add("a1", podA)), "refused by the test")
		allow()
		ns.mustRun(t, separate(del("a1", podA)))
		ns.wantReserved(t)

		forbidUpdates(ns, t, ipv4Range)
		ns.mustRun(t, separate(add("a1", podA)), firstIP, firstIPv6)
		ns.mustRun(t, separate(add("b1", podB)), firstIP, "fd00:15::2/112")
		ns.wantReserved(t, "fd00:15::1 a1 eth0", "fd00:15::2 b1 eth0")
	},
	"DEL by container ID": func(t *testing.T, ns *namespace) {
		ns.mustRun(t, add("a1", podA), firstIP)
		ns.mustRun(t, add("b1", podB), secondIP)
		ns.mustRun(t, del("unknown", podA)) // the pod of a1
		ns.wantReserved(t, "10.15.0.1 a1 eth0", "10.15.0.2 b1 eth0")
		ns.mustRun(t, del("a1", podB)) // the ID decides, not the pod
		ns.mustRun(t, del("a1", podA))
		ns.wantReserved(t, "10.15.0.2 b1 eth0")
	},
	"DEL without pod name": func(t *testing.T, ns *namespace) {
		ns.mustRun(t, add("a1", podA), firstIP)
		ns.mustRun(t, del("a1", ""))
		ns.wantReserved(t, "10.15.0.1 a1 eth0")
	},
	// A DEL that ended between two ranges cannot be completed: the next one ends at the first range.
	"DEL of the second range": func(t *testing.T, ns *namespace) {
		ns.mustRun(t, dual(add("a1", podA)), firstIP, firstIPv6)
		allow := forbidUpdates(ns, t, ipv6Range)
		ns.mustRun(t, dual(del("a1", podA)))
		allow()
		ns.wantReserved(t, "fd00:15::1 a1 eth0")
		ns.mustRun(t, dual(del("a1", podA)))
		ns.wantReserved(t, "fd00:15::1 a1 eth0")
	},
	"GC and STATUS": func(t *testing.T, ns *namespace) {
		ns.mustRun(t, add("a1", podA), firstIP)
		ns.mustRun(t, invocation{verb: "GC"})
		ns.mustRun(t, invocation{verb: "STATUS"})
		ns.wantReserved(t, "10.15.0.1 a1 eth0")
	},
	"without its configuration": func(t *testing.T, ns *namespace) {
		ns.mustRun(t, add("a1", podA), firstIP)
		// run.sh hides the files of the host in the default directories.
		for _, i := range []invocation{add("b1", podB), del("a1", podA)} {
			i.ipam = map[string]any{"configuration_path": nil}
			ns.mustFail(t, i, "config file not found")
		}
		ns.wantReserved(t, "10.15.0.1 a1 eth0")
	},
	"DEL, update forbidden": delRefused(forbidUpdates),
	"DEL, update invalid":   delRefused(invalidateUpdates),
	"DEL, update delayed":   delRefused(delayUpdates),
}

func delRefused(refuse refusal) func(*testing.T, *namespace) {
	return func(t *testing.T, ns *namespace) {
		ns.mustRun(t, add("a1", podA), firstIP)
		allow := refuse(ns, t, ipv4Range)
		ns.mustRun(t, del("a1", podA)) // reports success
		ns.wantReserved(t, "10.15.0.1 a1 eth0")
		allow()
		ns.mustRun(t, del("a1", podA))
		ns.wantReserved(t)
	}
}
