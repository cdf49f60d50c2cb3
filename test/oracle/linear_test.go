package oracle_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// did is an operation of the owner "router" between two moments.
func did(verb oracle.Verb, outcome oracle.Outcome, began, ended int64, ips ...string) oracle.Op {
	o := oracle.Op{Owner: "router", Verb: verb, Outcome: outcome, Began: began, Ended: ended}
	for _, ip := range ips {
		a := addr(ip)
		o.IPs = append(o.IPs, a)
		o.IPv4, o.IPv6 = o.IPv4 || a.Is4(), o.IPv6 || a.Is6()
	}
	return o
}

// asked is an allocate of both families that was never answered.
func asked(began, ended int64) oracle.Op {
	return oracle.Op{Owner: "router", Verb: oracle.Allocate, Outcome: oracle.Unknown, IPv4: true, IPv6: true, Began: began, Ended: ended}
}

func by(owner string, o oracle.Op) oracle.Op {
	o.Owner = owner
	return o
}

func TestAnswersMustFitAnOrderOfTheOperations(t *testing.T) {
	const (
		a, b, six = "10.0.0.2", "10.0.0.3", "fd00::2"
		allocate  = oracle.Allocate
		restore   = oracle.Restore
		release   = oracle.Release
		done      = oracle.Done
		refused   = oracle.Refused
		unknown   = oracle.Unknown
	)
	tests := map[string]struct {
		ops  []oracle.Op
		want oracle.Invariant
	}{
		"nothing was asked": {},
		"the same address again": {ops: []oracle.Op{
			did(allocate, done, 1, 2, a), did(allocate, done, 3, 4, a), did(allocate, done, 5, 6, a, six),
		}},
		"another address without a release": {want: oracle.Linearizable, ops: []oracle.Op{
			did(allocate, done, 1, 2, a), did(allocate, done, 3, 4, b),
		}},
		"another address after a release": {ops: []oracle.Op{
			did(allocate, done, 1, 2, a), did(release, done, 3, 4, a), did(allocate, done, 5, 6, b),
		}},
		"another address although the other family was still held": {want: oracle.Linearizable, ops: []oracle.Op{
			did(allocate, done, 1, 2, a, six), did(release, done, 3, 4, a), did(allocate, done, 5, 6, b),
		}},
		"another address during a release": {ops: []oracle.Op{
			did(allocate, done, 1, 2, a), did(release, done, 3, 6, a), did(allocate, done, 4, 5, b),
		}},
		"the old address during a release": {ops: []oracle.Op{
			did(allocate, done, 1, 2, a), did(release, done, 3, 6, a), did(allocate, done, 4, 5, a), did(allocate, done, 7, 8, b),
		}},
		"the old address and then another during a release, and then the old one": {want: oracle.Linearizable, ops: []oracle.Op{
			did(allocate, done, 1, 2, a), did(release, done, 3, 10, a),
			did(allocate, done, 4, 5, a), did(allocate, done, 6, 7, b), did(allocate, done, 8, 9, a),
		}},
		"a release of what is not held succeeded": {want: oracle.Linearizable, ops: []oracle.Op{
			did(release, done, 1, 2, a),
		}},
		"a release of what is held was refused": {want: oracle.Linearizable, ops: []oracle.Op{
			did(allocate, done, 1, 2, a), did(release, refused, 3, 4, a),
		}},
		"an allocate was refused": {want: oracle.Linearizable, ops: []oracle.Op{
			did(allocate, refused, 1, 2),
		}},
		"a restore of another's address was refused": {ops: []oracle.Op{
			did(restore, refused, 1, 2, a), did(allocate, done, 3, 4, b), did(restore, refused, 5, 6, a),
		}},
		"a restore of what is held was refused": {want: oracle.Linearizable, ops: []oracle.Op{
			did(allocate, done, 1, 2, a), did(restore, refused, 3, 4, a),
		}},
		"a restore gave a second address": {want: oracle.Linearizable, ops: []oracle.Op{
			did(allocate, done, 1, 2, a), did(restore, done, 3, 4, b),
		}},
		"a restore decides the address": {want: oracle.Linearizable, ops: []oracle.Op{
			did(restore, done, 1, 2, a), did(allocate, done, 3, 4, b),
		}},
		"a release without an answer was carried out": {ops: []oracle.Op{
			did(allocate, done, 1, 2, a), did(release, unknown, 3, 4, a), did(allocate, done, 5, 6, b),
		}},
		"a release without an answer was not carried out": {ops: []oracle.Op{
			did(allocate, done, 1, 2, a), did(release, unknown, 3, 4, a), did(allocate, done, 5, 6, a), did(release, done, 7, 8, a),
		}},
		"a release without an answer was carried out much later": {want: oracle.Linearizable, ops: []oracle.Op{
			did(allocate, done, 1, 2, a), did(release, unknown, 3, 4, a), did(allocate, done, 5, 6, a), did(allocate, done, 7, 8, b),
		}},
		"an allocate without an answer claimed both families": {ops: []oracle.Op{
			did(allocate, done, 1, 2, a), asked(3, 4), did(release, done, 5, 6, a), did(allocate, done, 7, 8, a),
		}},
		"an allocate without an answer did nothing": {ops: []oracle.Op{
			did(allocate, done, 1, 2, a), asked(3, 4), did(release, done, 5, 6, a), did(allocate, done, 7, 8, b),
		}},
		"two owners after each other": {ops: []oracle.Op{
			did(allocate, done, 1, 2, a), did(release, done, 3, 6, a), by("health", did(allocate, done, 4, 5, a)),
		}},
		"two owners at one moment": {want: oracle.NoDouble, ops: []oracle.Op{
			did(allocate, done, 1, 2, a), by("health", did(allocate, done, 3, 4, a)), did(release, done, 5, 6, a),
		}},
		"two owners at one moment by a restore": {want: oracle.NoDouble, ops: []oracle.Op{
			did(allocate, done, 1, 2, a), by("health", did(restore, done, 3, 4, a)),
		}},
		"an owner whose answer came during its release may have lost it": {ops: []oracle.Op{
			did(allocate, done, 1, 2, a), did(release, done, 3, 8, a), did(allocate, done, 4, 7, a),
			by("health", did(allocate, done, 9, 10, a)),
		}},
		"an owner that asked again after its release has it": {want: oracle.NoDouble, ops: []oracle.Op{
			did(allocate, done, 1, 2, a), did(release, done, 3, 4, a), did(allocate, done, 5, 6, a),
			by("health", did(allocate, done, 7, 8, a)),
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var got []oracle.Invariant
			for _, v := range oracle.CheckOps(tt.ops) {
				got = append(got, v.Invariant)
				if !strings.Contains(v.Error(), "router") {
					t.Errorf("%v does not name the owner", v)
				}
			}
			var want []oracle.Invariant
			if tt.want != "" {
				want = append(want, tt.want)
			}
			if !slices.Equal(got, want) {
				t.Errorf("judged %q; want %q", oracle.CheckOps(tt.ops), want)
			}
		})
	}
}

func TestALongHistoryIsJudged(t *testing.T) {
	var ops []oracle.Op
	for round := range int64(12) {
		ip := netip.AddrFrom4([4]byte{10, 0, byte(round), 2}).String()
		at := 100 * round
		// Eight clients at once, one of them to release what all others are told.
		for i := range int64(7) {
			ops = append(ops, did(oracle.Allocate, oracle.Done, at+i, at+50+i, ip))
		}
		ops = append(ops, did(oracle.Release, oracle.Done, at+10, at+60, ip))
	}
	if got := oracle.CheckOps(ops); got != nil {
		t.Errorf("judged %q; want nothing", got)
	}
	ops[len(ops)/2].IPs = []netip.Addr{addr("10.9.9.9")}
	if got := oracle.CheckOps(ops); len(got) != 1 || got[0].Invariant != oracle.Linearizable {
		t.Errorf("judged %q; want one answer that does not fit", got)
	}
}
