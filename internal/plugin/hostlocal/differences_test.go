package hostlocal

import (
	"os"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

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
