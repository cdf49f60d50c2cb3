package oracle_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// operations parses "began-ended verb addresses", separated by semicolons. A verb ends with "!" if it
// was refused and with "?" if it was not answered; it is of the owner "router", or begins with "health:".
func operations(t *testing.T, text string) (ops []oracle.Op) {
	t.Helper()
	ips := map[string]netip.Addr{"a": addr("10.0.0.2"), "b": addr("10.0.0.3"), "six": addr("fd00::2")}
	for line := range strings.SplitSeq(text, "; ") {
		fields := strings.Fields(line)
		o := oracle.Op{Owner: "router", Outcome: oracle.Done}
		if _, err := fmt.Sscanf(fields[0], "%d-%d", &o.Began, &o.Ended); err != nil {
			t.Fatal(err)
		}
		verb, health := strings.CutPrefix(fields[1], "health:")
		if health {
			o.Owner = "health"
		}
		if name, refused := strings.CutSuffix(verb, "!"); refused {
			verb, o.Outcome = name, oracle.Refused
		}
		if name, unknown := strings.CutSuffix(verb, "?"); unknown {
			verb, o.Outcome = name, oracle.Unknown
		}
		o.Verb = oracle.Verb(verb)
		for _, name := range fields[2:] {
			ip := ips[name]
			o.IPv4, o.IPv6 = o.IPv4 || ip.Is4(), o.IPv6 || ip.Is6()
			if o.Verb != oracle.Allocate || o.Outcome == oracle.Done {
				o.IPs = append(o.IPs, ip)
			}
		}
		ops = append(ops, o)
	}
	return ops
}

func TestCheckOps(t *testing.T) {
	const linear, double = oracle.Linearizable, oracle.NoDouble
	for text, want := range map[string]oracle.Invariant{
		"1-2 allocate a; 3-4 allocate a; 5-6 allocate a six":                             "",
		"1-2 allocate a; 3-4 allocate b":                                                 linear,
		"1-2 allocate a; 3-4 release a; 5-6 allocate b":                                  "",
		"1-2 allocate a six; 3-4 release a; 5-6 allocate b":                              linear,
		"1-2 allocate a; 3-6 release a; 4-5 allocate b":                                  "",
		"1-2 allocate a; 3-6 release a; 4-5 allocate a; 7-8 allocate b":                  "",
		"1-2 allocate a; 3-10 release a; 4-5 allocate a; 6-7 allocate b; 8-9 allocate a": linear,
		"1-2 release a":                                                         linear,
		"1-2 allocate a; 3-4 release! a":                                        linear,
		"1-2 allocate! a":                                                       linear,
		"1-2 restore! a; 3-4 allocate b; 5-6 restore! a":                        "",
		"1-2 allocate a; 3-4 restore! a":                                        linear,
		"1-2 allocate a; 3-4 restore b":                                         linear,
		"1-2 restore a; 3-4 allocate b":                                         linear,
		"1-2 allocate a; 3-4 release? a; 5-6 allocate b":                        "",
		"1-2 allocate a; 3-4 release? a; 5-6 allocate a; 7-8 release a":         "",
		"1-2 allocate a; 3-4 release? a; 5-6 allocate a; 7-8 allocate b":        linear,
		"1-2 allocate a; 3-4 allocate? a six; 5-6 release a; 7-8 allocate a":    "",
		"1-2 allocate a; 3-4 allocate? a six; 5-6 release a; 7-8 allocate b":    "",
		"1-2 allocate a; 3-6 release a; 4-5 health:allocate a":                  "",
		"1-2 allocate a; 3-4 health:allocate a; 5-6 release a":                  double,
		"1-2 allocate a; 3-4 health:restore a":                                  double,
		"1-2 allocate a; 3-8 release a; 4-7 allocate a; 9-10 health:allocate a": "",
		"1-2 allocate a; 3-4 release a; 5-6 allocate a; 7-8 health:allocate a":  double,
	} {
		got := oracle.CheckOps(operations(t, text))
		if len(got) > 1 || (len(got) == 0) != (want == "") || len(got) == 1 && got[0].Invariant != want {
			t.Errorf("%s: got %q; want %q", text, got, want)
		}
		for _, v := range got {
			if !strings.Contains(v.Error(), "router") {
				t.Errorf("%v does not name the owner", v)
			}
		}
	}
}

func TestLongHistory(t *testing.T) {
	var ops []oracle.Op
	for round := range int64(12) {
		// Eight concurrent clients; one releases the addresses of the others.
		for client := range int64(8) {
			o := oracle.Op{Owner: "router", Verb: oracle.Allocate, Outcome: oracle.Done, IPv4: true, Began: 100*round + client}
			if client == 7 {
				o.Verb, o.Began = oracle.Release, 100*round+10
			}
			o.Ended, o.IPs = o.Began+50, []netip.Addr{netip.AddrFrom4([4]byte{10, 0, byte(round), 2})}
			ops = append(ops, o)
		}
	}
	if got := oracle.CheckOps(ops); got != nil {
		t.Errorf("got %q; want none", got)
	}
	ops[len(ops)/2].IPs = []netip.Addr{addr("10.9.9.9")}
	if got := oracle.CheckOps(ops); len(got) != 1 || got[0].Invariant != oracle.Linearizable {
		t.Errorf("got %q; want one violation", got)
	}
}
