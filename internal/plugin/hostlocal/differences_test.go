package hostlocal

import (
	"os"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// Older versions accept configurations that v1.10.0 and Call refuse.
func TestRefusedByNewest(t *testing.T) {
	all := programs(t)
	for ipam, text := range map[string]string{
		`"subnet":"10.1.0.0/29","gateway":"10.9.0.1"`: "gateway 10.9.0.1 not in network 10.1.0.0/29",
		`"subnet":"10.1.0.0/29","gateway":"fd00::1"`:  "gateway fd00::1 not in network 10.1.0.0/29",
		// An explicit end before the start is refused by all.
		`"subnet":"10.1.0.0/29","rangeStart":"10.1.0.7"`: "RangeStart 10.1.0.7 is after RangeEnd 10.1.0.6 in network 10.1.0.0/29",
	} {
		f := newCallFixture(t)
		r := request{command: "DEL", id: "a", ifname: "eth0", config: strings.Replace(config(ipam, ""), "1.1.0", "1.0.0", 1)}
		want := reply{Err: "invalid range set 0: " + text}
		got, _ := embedded(t.Context(), &f.Stores, f.dir, r)
		check.Equal(t, ipam, got, want)
		for _, p := range all {
			if p.version != newest {
				want = reply{}
			}
			got, err := p.call(f.dir, r)
			check.NoError(t, err)
			check.Equal(t, p.version+" with "+ipam, got, want)
		}
		if !acceptedByOlder(r.configIn(f.dir)) {
			t.Errorf("refusedByNewest lacks %q", text)
		}
	}
}

// Call differs from the program in these things, on purpose.
func TestIntendedDifferences(t *testing.T) {
	p := programs(t)[0]
	const none = "host-local: Failed to find address added by container "
	for name, c := range map[string]struct {
		files []string
		call  string
		// program and embedded are the addresses or errors, and what is left are the files.
		program, embedded             string
		programLeaves, embeddedLeaves string
	}{
		"a killed program's address": {
			[]string{"10.1.0.2="},
			"ADD a eth0", "10.1.0.3", "10.1.0.2",
			"10.1.0.2 10.1.0.3 last_reserved_ip.0 lock", "10.1.0.2 last_reserved_ip.0 lock",
		},
		"GC of other files":         {[]string{"note=", "FD00::5=a\r\neth0"}, "GC - -", "", "", "lock", "FD00::5 lock note"},
		"GC of an empty lease":      {[]string{"10.1.0.2="}, "GC - -", "", "", "lock", "10.1.0.2 lock"},
		"GC of another content":     {[]string{"10.1.0.2=a\neth0", "10.1.0.3=\x00"}, "GC - -", "", "", "lock", "10.1.0.2 10.1.0.3 lock"},
		"DEL of other files":        {[]string{"note=a\r\neth0", "FD00::5=a\r\neth0"}, "DEL a eth0", "", "", "lock", "FD00::5 lock note"},
		"CHECK of other files":      {[]string{"note=a\r\neth0"}, "CHECK a eth0", "", none + "a", "lock note", "lock note"},
		"an address as the ID":      {[]string{"last_reserved_ip.0=10.1.0.2"}, "DEL 10.1.0.2 eth0", "", "", "lock", "last_reserved_ip.0 lock"},
		"CHECK of an address as ID": {[]string{"last_reserved_ip.0=10.1.0.2"}, "CHECK 10.1.0.2 eth0", "", none + "10.1.0.2", "last_reserved_ip.0 lock", "last_reserved_ip.0 lock"},
	} {
		t.Run(name, func(t *testing.T) {
			words := strings.Fields(c.call)
			r := request{command: words[0], id: words[1], ifname: words[2], config: oneRange}
			f := newCallFixture(t)
			for _, by := range []struct{ who, want, leaves string }{{"program", c.program, c.programLeaves}, {"embedded", c.embedded, c.embeddedLeaves}} {
				check.Must(t, os.RemoveAll(f.path()))
				f.put(c.files...)
				var got reply
				if by.who == "program" {
					var err error
					got, err = p.call(f.dir, r)
					check.Must(t, err)
				} else {
					got, _ = embedded(t.Context(), &f.Stores, f.dir, r)
				}
				check.Equal(t, by.who, got.text(), by.want)
				check.Equal(t, "files after "+by.who, check.Names(t, f.path()), by.leaves)
			}
		})
	}
}
