package cli

import (
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
)

func TestUsage(t *testing.T) {
	for line, words := range map[string][]string{
		"":                                       {"the command is missing", "serve", "list"},
		"alocate":                                {`"alocate"`, "did you mean allocate?"},
		"frobnicate":                             {`"frobnicate"`, "expected one of", "allocate"},
		"list --colour":                          {"--colour", "Run 'delegated-ipam list --help'"},
		"allocate":                               {"OWNER is missing"},
		"allocate a b":                           {`["a" "b"]`, "expected OWNER"},
		"allocate ''":                            {`OWNER is ""`, "a name"},
		"allocate a --family ipx":                {"--family", `"ipx"`, "one of ipv4, ipv6"},
		"allocate a --expiration=perhaps":        {"--expiration", `"perhaps"`, "true or false"},
		"restore 10.0.0.1":                       {"OWNER is missing", "IP OWNER"},
		"restore banana router":                  {`IP is "banana"`, "an address"},
		"restore 10.0.0.1/24 router":             {`"10.0.0.1/24"`, "without a prefix length"},
		"restore fe80::1%eth0 router":            {`"fe80::1%eth0"`, "zone"},
		"release":                                {"IP or OWNER is missing", "--all"},
		"release ''":                             {`OWNER is ""`},
		"release 10.0.0.1/24":                    {`IP is "10.0.0.1/24"`},
		"release fd00::1%eth0":                   {`IP is "fd00::1%eth0"`},
		"release router health":                  {"expected OWNER"},
		"release 10.0.0.1 --all --yes":           {"--all", "no address"},
		"release --all --yes --pool=blue":        {"--all", "--pool"},
		"release --all":                          {"--yes"},
		"release 10.0.0.1 --yes":                 {"--yes is for --all"},
		"release --all --yes --timeout=-1s":      {`--timeout is "-1s"`},
		"list router":                            {`"router"`, "no argument"},
		"doctor router":                          {`"router"`, "no argument"},
		"status router":                          {`"router"`, "no argument"},
		"version router":                         {`"router"`, "no argument"},
		"profile":                                {"the command is missing", "list, show, try"},
		"profile tri":                            {`"tri"`, "did you mean try?"},
		"profile list dhcp":                      {`"dhcp"`, "no argument"},
		"profile show":                           {"TYPE is missing"},
		"profile show a/b":                       {`TYPE is "a/b"`, "a plain file name"},
		"profile try":                            {"TYPE is missing"},
		"profile try dhcp --plugin-timeout=soon": {"--plugin-timeout", `"soon"`, "a duration"},
		"id":                                     {"OWNER is missing"},
		"history a b":                            {"accepts at most 1 arg"},
		"gc --yes":                               {"release --all --yes"},
		"gc --older-than=-1h":                    {`--older-than is "-1h"`},
		"probe healthy":                          {`"healthy"`},
		"probe":                                  {"expected one of startup, ready, live"},
		"probe live ready":                       {"2 arguments"},
		"probe live --timeout=0s":                {`--timeout is "0s"`},
		"probe live --timeout=1":                 {`--timeout is "1"`},
		"release --wait=1m 10.0.0.1":             {"expected"},
		"release --state-dir=/x 10.0.0.1":        {"expected"},
		"release --all --yes --wait=-1s":         {"expected"},
		"list -o xml":                            {"--output", `"xml"`, "one of table, json"},
		"list -H gopher://x":                     {"--host", `"gopher://x"`, "unix socket"},
		"list -H unix://":                        {"--host", "unix socket"},
		"reclaim":                                {"--node", "--from", "expected one of them"},
		"reclaim --node=a --from=f --yes":        {"expected one of them"},
		"reclaim --node=a":                       {"--yes-the-node-is-gone=a", "--dry-run"},
		"reclaim --node=a --yes-the-node-is-gone=b":            {"--yes-the-node-is-gone=a", `got "b"`},
		"reclaim --node=a --yes":                               {"--yes-the-node-is-gone to confirm --node"},
		"reclaim --from=f":                                     {"--yes", "--dry-run"},
		"reclaim --from=f --yes-the-node-is-gone=a":            {"--yes to confirm --from"},
		"reclaim --from=f --yes --owner=router":                {"--owner and --generations are for --node"},
		"reclaim --node=a --yes-the-node-is-gone=a --report=r": {"--report", "--from"},
		"reclaim --from=f --dry-run --report=r":                {"--report", "--dry-run"},
		"reclaim --node=a --dry-run --generations=-1":          {"--generations"},
		"reclaim --node=a --dry-run --owner=":                  {"at least one owner"},
		"reclaim --node=a --dry-run --owner=ciliumnode-7..3":   {"ciliumnode-7..3", "FIRST..LAST"},
		"reclaim worker-7":                                     {"expected no argument"},
		"reclaim --node=a --dry-run --plugin-timeout=0s":       {"--plugin-timeout"},
		"serve --release-delay=banana":                         {"--release-delay", `"banana"`, "a duration with its unit"},
		"serve --release-delay=-1s":                            {"--release-delay", "-1s", "0s or more"},
		"serve --max-queued-requests=many":                     {"--max-queued-requests", `"many"`, "a whole number"},
		"serve --socket-mode=rw":                               {"--socket-mode", `"rw"`, "such as 0660"},
		"serve --socket-mode=4660":                             {"--socket-mode", `"4660"`, "0777"},
		"serve --local-router-ipv4=banana":                     {"--local-router-ipv4", `"banana"`, "an IPv4 address"},
		"serve --local-router-ipv4=fd00::1":                    {"--local-router-ipv4", `"fd00::1"`, "an IPv4 address"},
		"serve --ipv6-range=fd00::/200":                        {"--ipv6-range", `"fd00::/200"`, "an IPv6 prefix"},
		"serve --enable-ipv6=perhaps":                          {"--enable-ipv6", `"perhaps"`, "true or false"},
		"serve --pool=blue":                                    {"--pool", `"blue"`, "name=network"},
		"serve --pool=a=x --pool=a=y":                          {"--pool", `"a=y"`, "each pool once"},
		"serve --log-level=loud":                               {"--log-level", `"loud"`, "one of error, warning, info, debug, trace"},
		"serve --log-level=panic":                              {"--log-level", `"panic"`},
		"serve --log-format=xml":                               {"--log-format", `"xml"`, "text, json"},
		"serve --allow-uids=root!":                             {"--allow-uids", `"root!"`, "numbers"},
		"serve --allow-gids=-1":                                {"--allow-gids", `"-1"`, "numbers"},
		"serve --cni-ifname=an-interface-name":                 {"--cni-ifname", `"an-interface-name"`, "15 characters"},
		"serve --colour=red":                                   {"--colour", "Run 'delegated-ipam serve --help'"},
		"serve --owners":                                       {"--owners"},
		"serve --config-dir=/nowhere":                          {"--config-dir", "/nowhere"},
		"serve now":                                            {`"now"`, "no argument"},
	} {
		t.Run(line, func(t *testing.T) {
			args := strings.Fields(line)
			for i := range args {
				args[i] = strings.Trim(args[i], "'")
			}
			testDependencies(nil).exec(t, args...).wants(t, cmdline.ExitUsage, "", words...)
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
	if n := len(root.Commands()); n != 18 {
		t.Errorf("%d commands; want 18", n)
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
