package cli

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
)

func TestCompletion(t *testing.T) {
	s := startDaemon(t, map[string][]response{
		"GET /v1/ipam":    lists(heldBoth + "," + heldOne + "," + cooldown),
		"GET /v1/healthz": {jsonResponse(200, `{"delegated-ipam":{"ready":true,"pools":[{"pool":"default","network":"pods"},{"pool":"blue"}]}}`)},
	})
	for name, tt := range map[string]struct {
		line []string
		want []string
	}{
		"release, address":           {[]string{"release", ""}, []string{"10.0.0.1\trouter", "fd00::1\trouter", "10.0.0.4\tpod", "pod", "router"}},
		"release, address of a pool": {[]string{"release", "--pool=blue", ""}, []string{"10.0.0.2\thealth", "fd00::2\thealth", "health"}},
		"release, second argument":   {[]string{"release", "10.0.0.1", ""}, nil},
		"restore, address":           {[]string{"restore", "fd"}, []string{"10.0.0.1\trouter", "fd00::1\trouter", "10.0.0.4\tpod"}},
		"restore, owner":             {[]string{"restore", "10.0.0.1", ""}, []string{"pod", "router"}},
		"allocate, owner":            {[]string{"allocate", ""}, []string{"pod", "router"}},
		"id, owner in a pool":        {[]string{"id", "--pool", "blue", ""}, []string{"health"}},
		"pool":                       {[]string{"release", "--pool", ""}, []string{"default\tpods", "blue"}},
		"probe, kind":                {[]string{"probe", ""}, []string{"startup", "ready", "live"}},
		"output format":              {[]string{"list", "-o", ""}, []string{"table", "json", "wide"}},
		"family":                     {[]string{"allocate", "--family", ""}, []string{"ipv4", "ipv6"}},
		"log level":                  {[]string{"serve", "--log-level", ""}, []string{"error", "warning", "info", "debug", "trace"}},
		"log format":                 {[]string{"serve", "--log-format", ""}, []string{"text", "json"}},
		"serve, pool":                {[]string{"serve", "--pool", ""}, nil},
		"version, command":           {[]string{"vers"}, []string{"version\tPrint the version of this program"}},
		"version, flag":              {[]string{"--vers"}, []string{"--version\tversion for delegated-ipam"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := s.dependencies().complete(t, tt.line); !slices.Equal(got, tt.want) {
				t.Errorf("got %q; want %q", got, tt.want)
			}
		})
	}
}

func TestCompletionNoDaemon(t *testing.T) {
	d := testDependencies(map[string]string{options.SocketEnv: filepath.Join(t.TempDir(), "none.sock")})
	for _, line := range [][]string{{"release", ""}, {"allocate", ""}, {"list", "--pool", ""}, {"release", "--pool", ""}} {
		if got := d.complete(t, line); len(got) > 0 {
			t.Errorf("%q: got %q", line, got)
		}
	}
}

// complete requests completions as the scripts of the shells do. The last line is the directive.
func (d dependencies) complete(t *testing.T, line []string) []string {
	t.Helper()
	o := d.exec(t, append([]string{"__complete"}, line...)...)
	if o.code != cmdline.ExitOK {
		t.Errorf("exit code %d", o.code)
	}
	words := strings.Split(strings.TrimSpace(o.stdout), "\n")
	return words[:len(words)-1]
}

func TestCompletionScripts(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		o := testDependencies(nil).exec(t, "completion", shell)
		o.wants(t, cmdline.ExitOK, o.stdout)
		if !strings.Contains(o.stdout, "delegated-ipam") {
			t.Errorf("the script of %s does not name the program:\n%s", shell, o.stdout)
		}
		if _, err := exec.LookPath(shell); err != nil || shell == "powershell" {
			t.Logf("%s is not installed", shell)
			continue
		}
		cmd := exec.Command(shell, "-n")
		cmd.Stdin = strings.NewReader(o.stdout)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s -n: %v\n%s", shell, err, out)
		}
	}
}
