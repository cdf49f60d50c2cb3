package cli

import (
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
)

func TestUsage(t *testing.T) {
	for name, tt := range map[string]struct {
		args  []string
		words []string
	}{
		"no command":                   {nil, []string{"the command is missing", "serve", "list"}},
		"unknown command":              {[]string{"alocate"}, []string{`"alocate"`, "did you mean allocate?"}},
		"command unlike any other":     {[]string{"frobnicate"}, []string{`"frobnicate"`, "expected one of", "allocate"}},
		"unknown flag":                 {[]string{"list", "--colour"}, []string{"--colour", "Run 'delegated-ipam list --help'"}},
		"allocate, no owner":           {[]string{"allocate"}, []string{"OWNER is missing"}},
		"allocate, two owners":         {[]string{"allocate", "a", "b"}, []string{`["a" "b"]`, "expected OWNER"}},
		"allocate, empty owner":        {[]string{"allocate", ""}, []string{`OWNER is ""`, "a name"}},
		"allocate, unknown family":     {[]string{"allocate", "a", "--family", "ipx"}, []string{"--family", `"ipx"`, "one of ipv4, ipv6"}},
		"allocate, bad switch":         {[]string{"allocate", "a", "--expiration=perhaps"}, []string{"--expiration", `"perhaps"`, "true or false"}},
		"restore, no owner":            {[]string{"restore", "10.0.0.1"}, []string{"OWNER is missing", "IP OWNER"}},
		"restore, malformed address":   {[]string{"restore", "banana", "router"}, []string{`IP is "banana"`, "an address"}},
		"restore, prefix length":       {[]string{"restore", "10.0.0.1/24", "router"}, []string{`"10.0.0.1/24"`, "without a prefix length"}},
		"restore, zone":                {[]string{"restore", "fe80::1%eth0", "router"}, []string{`"fe80::1%eth0"`, "zone"}},
		"release, no address":          {[]string{"release"}, []string{"IP is missing", "--all"}},
		"release, empty address":       {[]string{"release", ""}, []string{`IP is ""`}},
		"release, address and --all":   {[]string{"release", "10.0.0.1", "--all", "--yes"}, []string{"--all", "no address"}},
		"release, --all in a pool":     {[]string{"release", "--all", "--yes", "--pool=blue"}, []string{"--all", "--pool"}},
		"release, --all without --yes": {[]string{"release", "--all"}, []string{"--yes"}},
		"release, address with --yes":  {[]string{"release", "10.0.0.1", "--yes"}, []string{"--yes is for --all"}},
		"release, --discard, no --yes": {[]string{"release", "--discard", "router"}, []string{"--yes", "keeps its addresses"}},
		"release, --discard, no OWNER": {[]string{"release", "--discard", "--yes"}, []string{"OWNER"}},
		"release, --discard and --all": {[]string{"release", "--discard", "--all", "--yes"}, []string{"--all and --discard"}},
		"release, negative timeout":    {[]string{"release", "--all", "--yes", "--timeout=-1s"}, []string{"--timeout is -1s"}},
		"list, argument":               {[]string{"list", "router"}, []string{`"router"`, "no argument"}},
		"doctor, argument":             {[]string{"doctor", "router"}, []string{`"router"`, "no argument"}},
		"status, argument":             {[]string{"status", "router"}, []string{`"router"`, "no argument"}},
		"version, argument":            {[]string{"version", "router"}, []string{`"router"`, "no argument"}},
		"profile, no command":          {[]string{"profile"}, []string{"the command is missing", "list, show, try"}},
		"profile, unknown command":     {[]string{"profile", "tri"}, []string{`"tri"`, "did you mean try?"}},
		"profile list, argument":       {[]string{"profile", "list", "dhcp"}, []string{`"dhcp"`, "no argument"}},
		"profile show, no type":        {[]string{"profile", "show"}, []string{"TYPE is missing"}},
		"profile show, not a type":     {[]string{"profile", "show", "a/b"}, []string{`TYPE is "a/b"`, "a plain file name"}},
		"profile try, no type":         {[]string{"profile", "try"}, []string{"TYPE is missing"}},
		"profile try, bad timeout":     {[]string{"profile", "try", "dhcp", "--plugin-timeout=soon"}, []string{"--plugin-timeout", `"soon"`, "a duration"}},
		"id, no owner":                 {[]string{"id"}, []string{"OWNER is missing"}},
		"gc, --yes, no condition":      {[]string{"gc", "--yes"}, []string{"release --all --yes"}},
		"gc, negative age":             {[]string{"gc", "--older-than=-1h"}, []string{"--older-than is -1h"}},
		"probe, unknown kind":          {[]string{"probe", "healthy"}, []string{`"healthy"`}},
		"probe, no kind":               {[]string{"probe"}, []string{"expected one of startup, ready, live"}},
		"probe, two kinds":             {[]string{"probe", "live", "ready"}, []string{"2 arguments"}},
		"probe, zero timeout":          {[]string{"probe", "live", "--timeout=0s"}, []string{"--timeout is 0s"}},
		"probe, timeout without unit":  {[]string{"probe", "live", "--timeout=1"}, []string{`--timeout is "1"`}},
		"release, address and --wait":  {[]string{"release", "--wait=1m", "10.0.0.1"}, []string{"expected"}},
		"release, address, state":      {[]string{"release", "--state-dir=/x", "10.0.0.1"}, []string{"expected"}},
		"release, negative wait":       {[]string{"release", "--all", "--yes", "--wait=-1s"}, []string{"expected"}},
		"unknown output format":        {[]string{"list", "-o", "xml"}, []string{"--output", `"xml"`, "one of table, json"}},
		"host that is not a socket":    {[]string{"list", "-H", "gopher://x"}, []string{"--host", `"gopher://x"`, "unix socket"}},
		"host without a path":          {[]string{"list", "-H", "unix://"}, []string{"--host", "unix socket"}},
	} {
		t.Run(name, func(t *testing.T) {
			testDependencies(nil).exec(t, tt.args...).wants(t, cmdline.ExitUsage, "", tt.words...)
		})
	}
}

func TestHelp(t *testing.T) {
	root := testDependencies(nil).command()
	all := root.Commands()
	for _, c := range root.Commands() {
		all = append(all, c.Commands()...)
	}
	for _, c := range all {
		if c.Long == "" || c.Example == "" || c.Short == "" {
			t.Errorf("%s lacks a text or an example", c.Name())
		}
		o := testDependencies(nil).exec(t, append(strings.Fields(c.CommandPath())[1:], "--help")...)
		if o.code != cmdline.ExitOK || o.stderr != "" || len(o.stdout) < len(c.Long) {
			t.Errorf("%s --help: exit code %d, stdout %q, stderr %q", c.Name(), o.code, o.stdout, o.stderr)
		}
	}
	if n := len(root.Commands()); n != 15 {
		t.Errorf("%d commands; want 15", n)
	}
}

func TestRootHelp(t *testing.T) {
	golden(t, "help.txt", testDependencies(nil).exec(t, "--help").stdout)
}

func TestRun(t *testing.T) {
	var stdout, stderr strings.Builder
	if code := Run(t.Context(), []string{"version"}, nil, &stdout, &stderr, "v9"); code != cmdline.ExitOK || !strings.HasPrefix(stdout.String(), "delegated-ipam version v9 (") {
		t.Errorf("version ended with status %d and printed %q, to stderr %q", code, &stdout, &stderr)
	}
	environ := []string{"=weird", "CILIUM_SOCK=/first", "CILIUM_SOCK=/none/last=1"}
	if code := Run(t.Context(), []string{"list"}, environ, &stdout, &stderr, ""); code != cmdline.ExitFailed || !strings.Contains(stderr.String(), "/none/last=1: ") {
		t.Errorf("list ended with status %d and printed %q to stderr; want it to name the socket in the environment", code, &stderr)
	}
}
