package profiletry

import (
	"encoding/json"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/containerid"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// used returns the profile for the fake: the embedded one of another type under its name, or "unknown".
func used(t *testing.T, of string) profile.Profile {
	t.Helper()
	set, err := profile.Load()
	check.Must(t, err)
	if of == profile.Unknown {
		return ProfileFor(set, "fake")
	}
	p := ProfileFor(set, of)
	p.Type = "fake"
	return p
}

// proposed are the fields of a proposal that steps determine.
type proposed struct {
	repeatedAdd profile.RepeatedAdd
	verifyBy    profile.Verify
	checkProves profile.CheckProves
	lost        string
	requests    string
	form        profile.RequestForm
	unique      bool
}

func proposedBy(t *testing.T, p profile.Profile) proposed {
	t.Helper()
	lost, err := json.Marshal(p.Lost)
	check.Must(t, err)
	var requests []string
	for _, r := range p.Requests {
		requests = append(requests, string(r))
	}
	return proposed{p.RepeatedAdd, p.VerifyBy, p.CheckProves, string(lost), strings.Join(requests, " "), p.RequestForm, p.Unique}
}

func TestProposal(t *testing.T) {
	const (
		refused, same, another = profile.RepeatedAddRefused, profile.RepeatedAddSameAnswer, profile.RepeatedAddAnotherAddress
		none                   = `{}`
		notFound               = `{"codes":[999],"message":"fake: Failed to find address added by container"}`
	)
	all := func(form, way string) map[string]string {
		m := map[string]string{}
		for _, c := range conventions {
			m[string(c)+" "+form] = way
		}
		return m
	}
	for name, c := range map[string]struct {
		ways ways
		used string
		want proposed
	}{
		"as host-local":       {ways{}, profile.Unknown, proposed{refused, profile.VerifyCheck, profile.ProvesPresence, notFound, "", "", true}},
		"own lost is kept":    {ways{requests: all("address", "honour"), capabilities: []string{"ips"}}, "host-local", proposed{refused, profile.VerifyCheck, profile.ProvesPresence, `{"codes":[999],"message":"Failed to find address"}`, "args.cni.ips runtimeConfig.ips CNI_ARGS", "address", true}},
		"CHECK compares":      {ways{check: "address"}, profile.Unknown, proposed{refused, profile.VerifyCheck, profile.ProvesAddress, notFound, "", "", true}},
		"CHECK always":        {ways{check: "always", repeated: another}, profile.Unknown, proposed{another, profile.VerifyNothing, profile.ProvesNothing, none, "", "", true}},
		"CHECK never":         {ways{check: "never", repeated: same}, profile.Unknown, proposed{same, profile.VerifyNothing, profile.ProvesNothing, none, "", "", true}},
		"as dhcp":             {ways{check: "allocating", repeated: same}, "dhcp", proposed{same, profile.VerifyAdd, profile.ProvesNothing, none, "", "", true}},
		"as dhcp, unknown":    {ways{check: "allocating", repeated: same}, profile.Unknown, proposed{same, profile.VerifyNothing, profile.ProvesNothing, none, "", "", true}},
		"not as its profile":  {ways{check: "allocating", repeated: another}, "dhcp", proposed{another, profile.VerifyNothing, profile.ProvesNothing, none, "", "", true}},
		"one address for all": {ways{same: true, check: "always", requests: all("cidr", "honour")}, profile.Unknown, proposed{same, profile.VerifyNothing, profile.ProvesNothing, none, "args.cni.ips CNI_ARGS", "cidr", false}},
		"CNI's own code":      {ways{checkError: call.Error{Code: 11, Msg: "no such container ID"}}, profile.Unknown, proposed{refused, profile.VerifyNothing, profile.ProvesNothing, none, "", "", true}},
		"error without text":  {ways{checkError: call.Error{Code: 999, Msg: "ID"}}, profile.Unknown, proposed{refused, profile.VerifyNothing, profile.ProvesNothing, none, "", "", true}},
		"error with its pool": {ways{checkError: call.Error{Code: 999, Msg: "no allocation in pool blue for ID"}}, profile.Unknown, proposed{refused, profile.VerifyCheck, profile.ProvesPresence, `{"codes":[999],"message":"no allocation in pool blue for"}`, "", "", true}},
		"error with network":  {ways{checkError: call.Error{Code: 999, Msg: "nothing in subnetworks of net for ID"}}, profile.Unknown, proposed{refused, profile.VerifyCheck, profile.ProvesPresence, `{"codes":[999],"message":"nothing in subnetworks of"}`, "", "", true}},
		"no CHECK":            {ways{version: "0.3.1"}, profile.Unknown, proposed{refused, profile.VerifyNothing, profile.ProvesNothing, `{}`, "", "", true}},
		"pool of one":         {ways{pool: 1}, "host-local", proposed{refused, profile.VerifyCheck, profile.ProvesPresence, `{"codes":[999],"message":"Failed to find address"}`, "args.cni.ips runtimeConfig.ips CNI_ARGS", "address", true}},
		"pool of two":         {ways{pool: 2}, profile.Unknown, proposed{refused, profile.VerifyCheck, profile.ProvesPresence, notFound, "", "", true}},
		"one convention":      {ways{requests: map[string]string{"CNI_ARGS cidr": "honour"}}, profile.Unknown, proposed{refused, profile.VerifyCheck, profile.ProvesPresence, notFound, "CNI_ARGS", "cidr", true}},
		"extra address":       {ways{requests: map[string]string{"CNI_ARGS cidr": "extra", "CNI_ARGS address": "refuse"}}, profile.Unknown, proposed{refused, profile.VerifyCheck, profile.ProvesPresence, notFound, "", "", true}},
		"by chance":           {ways{requests: map[string]string{"CNI_ARGS cidr": "first"}}, profile.Unknown, proposed{refused, profile.VerifyCheck, profile.ProvesPresence, notFound, "", "", true}},
		"refused requests":    {ways{requests: map[string]string{"CNI_ARGS address": "refuse", "CNI_ARGS cidr": "refuse"}, check: "always", repeated: another}, "calico-ipam", proposed{another, profile.VerifyNothing, profile.ProvesNothing, none, "CNI_ARGS", "address", true}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, c.ways)
			r, err := Run(t.Context(), f.options(used(t, c.used)))
			if err != nil || r.Proposal == nil {
				t.Fatalf("got %v and proposal %v, want a proposal", err, r.Proposal)
			}
			check.Equal(t, "proposal", proposedBy(t, *r.Proposal), c.want)
			if r.Proposal.Type != "fake" || len(f.store) != 0 || len(r.Leftovers) != 0 {
				t.Errorf("got a proposal for %q, store %v, leftovers %v; want fake and none", r.Proposal.Type, f.store, r.Leftovers)
			}
		})
	}
}

func TestReport(t *testing.T) {
	f := newFake(t, ways{check: "address", requests: map[string]string{"CNI_ARGS address": "honour"}})
	p := used(t, "host-local")
	r, err := Run(t.Context(), f.options(p))
	check.Must(t, err)
	check.Equal(t, "number of facts", len(r.Facts), reflect.TypeFor[profile.Profile]().NumField())
	var fields []string
	for _, fact := range r.Facts {
		check.True(t, fact.Reason != "", "the field %s has no reason", fact.Field)
		if fact.From == FromStep {
			fields = append(fields, fact.Field)
		}
	}
	page, err := os.ReadFile("../../../docs/reference/profiles.md")
	check.Must(t, err)
	_, tried, _ := strings.Cut(string(page), "\nIt tries ")
	for _, field := range fields {
		check.True(t, strings.Contains(strings.SplitN(tried, ". ", 2)[0], "`"+field+"`"), "the page does not say that %s is tried", field)
	}
	check.Equal(t, "determined fields", strings.Join(fields, " "), "repeatedAdd verifyBy checkProves dependsOnPod lost delNotHeld requests requestForm unique dangers")
	fields = nil
	for _, d := range r.Differences {
		fields = append(fields, d.Field)
	}
	if want := []string{"checkProves", "requests"}; !slices.Equal(fields, want) {
		t.Errorf("got differences in %q, want %q", fields, want)
	}
	if d := r.Differences[0]; string(d.Profile) != `"presence"` || string(d.Proposal) != `"address"` || !strings.Contains(d.Reason, "with another address was refused") {
		t.Errorf("got %+v, want presence, address and what CHECK returned", d)
	}
	if r.Binary != "/bin/fake" || r.CNIVersion != "1.1.0" || !slices.Equal(r.Versions, []string{"1.1.0"}) || r.Steps[0].Verb != call.VerbStatus {
		t.Errorf("got %+v, want the binary, its versions and STATUS first", r)
	}
}

// What a DEL reports of an ID that holds nothing is described by a text that no other error has.
func TestProposedDel(t *testing.T) {
	for name, c := range map[string]struct {
		ways ways
		want string
	}{
		"accepted":                   {ways{}, ""},
		"refused":                    {ways{strictDel: true}, "unknown container"},
		"the text of another error":  {ways{strictDel: true, delError: "has been allocated to"}, ""},
		"a constant message":         {ways{strictDel: true, delError: "plugin failed", addError: "plugin failed", details: "no allocation found"}, "no allocation found"},
		"the name of the network":    {ways{strictDel: true, delError: "no container in net here"}, "no container in"},
		"nothing but a short number": {ways{strictDel: true, delError: "17"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Run(t.Context(), newFake(t, c.ways).options(used(t, profile.Unknown)))
			check.Must(t, err)
			if got := r.Proposal.DelNotHeld.Message; strings.TrimRight(got, `" `) != c.want {
				t.Errorf("got %q; want %q", got, c.want)
			}
		})
	}
}

func TestProposedDanger(t *testing.T) {
	for name, c := range map[string]struct {
		ways ways
		want bool
	}{"safe": {ways{}, false}, "DEL frees the lowest address": {ways{delFrees: true}, true}, "one address for all": {ways{same: true}, false}} {
		t.Run(name, func(t *testing.T) {
			r, err := Run(t.Context(), newFake(t, c.ways).options(used(t, profile.Unknown)))
			check.Must(t, err)
			if got := r.Proposal.Danger() != ""; got != c.want {
				t.Errorf("dangers %q; want some: %t", r.Proposal.Dangers, c.want)
			}
		})
	}
}

func TestProposedDependsOnPod(t *testing.T) {
	for name, c := range map[string]struct {
		ways ways
		used string
		want profile.DependsOnPod
	}{
		"the address alone":   {ways{}, profile.Unknown, profile.DependsUnknown},
		"a known one":         {ways{}, "host-local", profile.DependsOnNothing},
		"more":                {ways{ofID: true}, profile.Unknown, profile.DependsOnIdentity},
		"more, unlike known":  {ways{ofID: true}, "host-local", profile.DependsOnIdentity},
		"one address for all": {ways{same: true}, "host-local", profile.DependsUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Run(t.Context(), newFake(t, c.ways).options(used(t, c.used)))
			check.Must(t, err)
			check.Equal(t, "dependsOnPod", r.Proposal.Depends, c.want)
		})
	}
}

func TestNotes(t *testing.T) {
	for name, c := range map[string]struct {
		ways ways
		used string
		want string
	}{
		"no profile":          {ways{}, profile.Unknown, "fake has no profile"},
		"pod that is not one": {ways{}, profile.Unknown, "Danger: a controller that frees"},
		"DEL of an unknown":   {ways{strictDel: true, delError: "ID"}, "host-local", "repeats a DEL until it succeeds"},
		"roll-back":           {ways{rollback: true}, "host-local", "may release the addresses of its ID"},
		"keeps nothing":       {ways{same: true, check: "always"}, "static", "nothing can be lost"},
		"DEL may be nothing":  {ways{check: "never", repeated: profile.RepeatedAddSameAnswer}, "whereabouts", "search the plugin's store for " + fakeIDPrefix},
		"DEL is queued":       {ways{check: "always", repeated: profile.RepeatedAddSameAnswer}, "azure-ipam", "executed later"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Run(t.Context(), newFake(t, c.ways).options(used(t, c.used)))
			check.Must(t, err)
			if !slices.ContainsFunc(r.Notes, func(note string) bool { return strings.Contains(note, c.want) }) {
				t.Errorf("got %q, want %q in one", r.Notes, c.want)
			}
		})
	}
}

func TestNewIDPrefix(t *testing.T) {
	a, b := NewIDPrefix(), NewIDPrefix()
	if a == b || !strings.HasPrefix(a, "delegated-ipam-try-") || len(a)+len("-r6") > 63 {
		t.Errorf("got %q and %q, want two that begin alike and leave room in a DNS label", a, b)
	}
	check.True(t, !containerid.Match(a+"-1"), "%s-1 has the form of the daemon's IDs", a)
}

func TestNeighbours(t *testing.T) {
	for name, c := range map[string]struct{ prefix, gateway, want string }{
		"above":           {"10.1.0.5/24", "10.1.0.1", "10.1.0.6/24, 10.1.0.7/24"},
		"not the gateway": {"10.1.0.5/24", "10.1.0.6", "10.1.0.7/24, 10.1.0.8/24"},
		"last":            {"10.1.0.254/24", "10.1.0.1", "10.1.0.253/24, 10.1.0.252/24"},
		"small subnet":    {"10.1.0.2/30", "10.1.0.1", ""},
		"no subnet":       {"10.1.0.5/32", "", "10.1.0.6/32, 10.1.0.7/32"},
		"IPv6":            {"fd00::5/120", "fd00::1", "fd00::6/120, fd00::7/120"},
	} {
		t.Run(name, func(t *testing.T) {
			a := call.Address{Prefix: netip.MustParsePrefix(c.prefix)}
			if c.gateway != "" {
				a.Gateway = netip.MustParseAddr(c.gateway)
			}
			var got []string
			for _, p := range neighbours(a, 2) {
				got = append(got, p.String())
			}
			check.True(t, strings.Join(got, ", ") == c.want, "got %q, want %q", got, c.want)
		})
	}
}
