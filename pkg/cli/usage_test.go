package cli

import (
	"testing"

	"github.com/delegated-ipam/delegated-ipam/pkg/option"
)

func TestWrongUsageEndsWithStatus2AndSaysWhatIsExpected(t *testing.T) {
	tests := map[string]struct {
		args []string
		says []string
	}{
		"no command":                           {nil, []string{"the command is missing", "serve", "list"}},
		"an unknown command":                   {[]string{"alocate"}, []string{`"alocate"`, "did you mean allocate?"}},
		"a command unlike any other":           {[]string{"frobnicate"}, []string{`"frobnicate"`, "expected one of", "allocate"}},
		"an unknown flag":                      {[]string{"list", "--colour"}, []string{"--colour", "Run 'delegated-ipam list --help'"}},
		"allocate without an owner":            {[]string{"allocate"}, []string{"OWNER is missing"}},
		"allocate with two owners":             {[]string{"allocate", "a", "b"}, []string{`["a" "b"]`, "expected OWNER"}},
		"allocate with an empty owner":         {[]string{"allocate", ""}, []string{`OWNER is ""`, "a name"}},
		"allocate of an unknown family":        {[]string{"allocate", "a", "--family", "ipx"}, []string{"--family", `"ipx"`, "one of ipv4, ipv6"}},
		"a switch that is neither on nor off":  {[]string{"allocate", "a", "--expiration=perhaps"}, []string{"--expiration", `"perhaps"`, "true or false"}},
		"restore without an owner":             {[]string{"restore", "10.0.0.1"}, []string{"OWNER is missing", "IP OWNER"}},
		"restore of what is no address":        {[]string{"restore", "banana", "router"}, []string{`IP is "banana"`, "an address"}},
		"restore with a prefix length":         {[]string{"restore", "10.0.0.1/24", "router"}, []string{`"10.0.0.1/24"`, "without a prefix length"}},
		"restore with a zone":                  {[]string{"restore", "fe80::1%eth0", "router"}, []string{`"fe80::1%eth0"`, "zone"}},
		"release of nothing":                   {[]string{"release"}, []string{"IP is missing", "--all"}},
		"release of an empty address":          {[]string{"release", ""}, []string{`IP is ""`}},
		"release of an address and everything": {[]string{"release", "10.0.0.1", "--all", "--yes"}, []string{"--all", "no address"}},
		"release of everything in one pool":    {[]string{"release", "--all", "--yes", "--pool=blue"}, []string{"--all", "--pool"}},
		"release of everything without --yes":  {[]string{"release", "--all"}, []string{"--yes"}},
		"release of one address with --yes":    {[]string{"release", "10.0.0.1", "--yes"}, []string{"--yes is for --all"}},
		"list with an argument":                {[]string{"list", "router"}, []string{`"router"`, "no argument"}},
		"doctor with an argument":              {[]string{"doctor", "router"}, []string{`"router"`, "no argument"}},
		"status with an argument":              {[]string{"status", "router"}, []string{`"router"`, "no argument"}},
		"version with an argument":             {[]string{"version", "router"}, []string{`"router"`, "no argument"}},
		"id without an owner":                  {[]string{"id"}, []string{"OWNER is missing"}},
		"an unknown output format":             {[]string{"list", "-o", "xml"}, []string{"--output", `"xml"`, "one of table, json"}},
		"a host that is no unix socket":        {[]string{"list", "-H", "gopher://x"}, []string{"--host", `"gopher://x"`, "unix socket"}},
		"a host without a path":                {[]string{"list", "-H", "unix://"}, []string{"--host", "unix socket"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			testProgram(nil).runHere(t, tt.args...).wants(t, option.Usage, "", tt.says...)
		})
	}
}

func TestEveryCommandTeachesItself(t *testing.T) {
	root := testProgram(nil).rootCommand()
	for _, c := range root.Commands() {
		if c.Long == "" || c.Example == "" || c.Short == "" {
			t.Errorf("%s lacks a text or an example", c.Name())
		}
		o := testProgram(nil).runHere(t, c.Name(), "--help")
		if o.code != option.Done || o.stderr != "" || len(o.stdout) < len(c.Long) {
			t.Errorf("%s --help ended with status %d and printed %q, to stderr %q", c.Name(), o.code, o.stdout, o.stderr)
		}
	}
	if n := len(root.Commands()); n != 11 {
		t.Errorf("there are %d commands; want 11", n)
	}
}
