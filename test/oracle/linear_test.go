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

// unanswered is an allocate of both families without a response.
func unanswered(began, ended int64) oracle.Op {
	return oracle.Op{Owner: "router", Verb: oracle.Allocate, Outcome: oracle.Unknown, IPv4: true, IPv6: true, Began: began, Ended: ended}
}

func by(owner string, o oracle.Op) oracle.Op {
	o.Owner = owner
	return o
}

func TestCheckOps(t *testing.T) {
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
		"no operations": {},
		"same address again": {ops: []oracle.Op{
			did(allocate, done, 1, 2, a), did(allocate, done, 3, 4, a), did(allocate, done, 5, 6, a, six),
		}},
		"other address without release": {want: oracle.Linearizable, ops: []oracle.Op{
			did(allocate, done, 1, 2, a), did(allocate, done, 3, 4, b),
		}},
		"other address after release": {ops: []oracle.Op{
			did(allocate, done, 1, 2, a), did(release, done, 3, 4, a), did(allocate, done, 5, 6, b),
		}},
		"other address, other family held": {want: oracle.Linearizable, ops: []oracle.Op{
			did(allocate, done, 1, 2, a, six), did(release, done, 3, 4, a), did(allocate, done, 5, 6, b),
		}},
		"other address during release": {ops: []oracle.Op{
			did(allocate, done, 1, 2, a), did(release, done, 3, 6, a), did(allocate, done, 4, 5, b),
		}},
		"same address during release": {ops: []oracle.Op{
			did(allocate, done, 1, 2, a), did(release, done, 3, 6, a), did(allocate, done, 4, 5, a), did(allocate, done, 7, 8, b),
		}},
		"same, other and same address during one release": {want: oracle.Linearizable, ops: []oracle.Op{
			did(allocate, done, 1, 2, a), did(release, done, 3, 10, a),
			did(allocate, done, 4, 5, a), did(allocate, done, 6, 7, b), did(allocate, done, 8, 9, a),
		}},
		"release of nothing succeeds": {want: oracle.Linearizable, ops: []oracle.Op{
			did(release, done, 1, 2, a),
		}},
		"release of a claim refused": {want: oracle.Linearizable, ops: []oracle.Op{
			did(allocate, done, 1, 2, a), did(release, refused, 3, 4, a),
		}},
		"allocate refused": {want: oracle.Linearizable, ops: []oracle.Op{
			did(allocate, refused, 1, 2),
		}},
		"restore of another address refused": {ops: []oracle.Op{
			did(restore, refused, 1, 2, a), did(allocate, done, 3, 4, b), did(restore, refused, 5, 6, a),
		}},
		"restore of a held address refused": {want: oracle.Linearizable, ops: []oracle.Op{
			did(allocate, done, 1, 2, a), did(restore, refused, 3, 4, a),
		}},
		"restore gives a second address": {want: oracle.Linearizable, ops: []oracle.Op{
			did(allocate, done, 1, 2, a), did(restore, done, 3, 4, b),
		}},
		"restore decides the address": {want: oracle.Linearizable, ops: []oracle.Op{
			did(restore, done, 1, 2, a), did(allocate, done, 3, 4, b),
		}},
		"unknown release, carried out": {ops: []oracle.Op{
			did(allocate, done, 1, 2, a), did(release, unknown, 3, 4, a), did(allocate, done, 5, 6, b),
		}},
		"unknown release, not carried out": {ops: []oracle.Op{
			did(allocate, done, 1, 2, a), did(release, unknown, 3, 4, a), did(allocate, done, 5, 6, a), did(release, done, 7, 8, a),
		}},
		"unknown release, carried out too late": {want: oracle.Linearizable, ops: []oracle.Op{
			did(allocate, done, 1, 2, a), did(release, unknown, 3, 4, a), did(allocate, done, 5, 6, a), did(allocate, done, 7, 8, b),
		}},
		"unknown allocate, carried out": {ops: []oracle.Op{
			did(allocate, done, 1, 2, a), unanswered(3, 4), did(release, done, 5, 6, a), did(allocate, done, 7, 8, a),
		}},
		"unknown allocate, not carried out": {ops: []oracle.Op{
			did(allocate, done, 1, 2, a), unanswered(3, 4), did(release, done, 5, 6, a), did(allocate, done, 7, 8, b),
		}},
		"one owner after another": {ops: []oracle.Op{
			did(allocate, done, 1, 2, a), did(release, done, 3, 6, a), by("health", did(allocate, done, 4, 5, a)),
		}},
		"two owners": {want: oracle.NoDouble, ops: []oracle.Op{
			did(allocate, done, 1, 2, a), by("health", did(allocate, done, 3, 4, a)), did(release, done, 5, 6, a),
		}},
		"two owners by restore": {want: oracle.NoDouble, ops: []oracle.Op{
			did(allocate, done, 1, 2, a), by("health", did(restore, done, 3, 4, a)),
		}},
		"response during release": {ops: []oracle.Op{
			did(allocate, done, 1, 2, a), did(release, done, 3, 8, a), did(allocate, done, 4, 7, a),
			by("health", did(allocate, done, 9, 10, a)),
		}},
		"request after release": {want: oracle.NoDouble, ops: []oracle.Op{
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
				t.Errorf("got %q; want %q", oracle.CheckOps(tt.ops), want)
			}
		})
	}
}

func TestLongHistory(t *testing.T) {
	var ops []oracle.Op
	for round := range int64(12) {
		ip := netip.AddrFrom4([4]byte{10, 0, byte(round), 2}).String()
		at := 100 * round
		// Eight concurrent clients; one releases the addresses of the others.
		for i := range int64(7) {
			ops = append(ops, did(oracle.Allocate, oracle.Done, at+i, at+50+i, ip))
		}
		ops = append(ops, did(oracle.Release, oracle.Done, at+10, at+60, ip))
	}
	if got := oracle.CheckOps(ops); got != nil {
		t.Errorf("got %q; want none", got)
	}
	ops[len(ops)/2].IPs = []netip.Addr{addr("10.9.9.9")}
	if got := oracle.CheckOps(ops); len(got) != 1 || got[0].Invariant != oracle.Linearizable {
		t.Errorf("got %q; want one violation", got)
	}
}
