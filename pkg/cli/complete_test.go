package cli

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/pkg/option"
)

func TestTabCompletesWhatTheSidecarHolds(t *testing.T) {
	s := startSidecar(t, map[string][]answer{
		"GET /v1/ipam":    lists(heldBoth + "," + heldOne + "," + cooldown),
		"GET /v1/healthz": {jsonAnswer(200, `{"delegated-ipam":{"ready":true,"pools":[{"pool":"default","network":"pods"},{"pool":"blue"}]}}`)},
	})
	tests := map[string]struct {
		line []string
		want []string
	}{
		"release with an address":                {[]string{"release", ""}, []string{"10.0.0.1\trouter", "fd00::1\trouter", "10.0.0.4\tpod"}},
		"release with an address of the pool":    {[]string{"release", "--pool=blue", ""}, []string{"10.0.0.2\thealth", "fd00::2\thealth"}},
		"release with one address only":          {[]string{"release", "10.0.0.1", ""}, nil},
		"restore with an address":                {[]string{"restore", "fd"}, []string{"10.0.0.1\trouter", "fd00::1\trouter", "10.0.0.4\tpod"}},
		"restore with an owner":                  {[]string{"restore", "10.0.0.1", ""}, []string{"pod", "router"}},
		"allocate with an owner":                 {[]string{"allocate", ""}, []string{"pod", "router"}},
		"id with an owner of the pool":           {[]string{"id", "--pool", "blue", ""}, []string{"health"}},
		"a pool":                                 {[]string{"release", "--pool", ""}, []string{"default\tpods", "blue"}},
		"a kind of probe":                        {[]string{"probe", ""}, []string{"startup", "ready", "live"}},
		"an output format":                       {[]string{"list", "-o", ""}, []string{"table", "json"}},
		"a family":                               {[]string{"allocate", "--family", ""}, []string{"ipv4", "ipv6"}},
		"a log level":                            {[]string{"serve", "--log-level", ""}, []string{"error", "warning", "info", "debug", "trace"}},
		"a log format":                           {[]string{"serve", "--log-format", ""}, []string{"text", "json"}},
		"the pools of serve with nothing to ask": {[]string{"serve", "--pool", ""}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := completed(t, s.program(), tt.line); !slices.Equal(got, tt.want) {
				t.Errorf("got %q; want %q", got, tt.want)
			}
		})
	}
}

func TestTabWithoutASidecarOffersNothing(t *testing.T) {
	p := testProgram(map[string]string{option.SocketEnv: filepath.Join(t.TempDir(), "none.sock")})
	for _, line := range [][]string{{"release", ""}, {"allocate", ""}, {"list", "--pool", ""}, {"release", "--pool", ""}} {
		if got := completed(t, p, line); len(got) > 0 {
			t.Errorf("%q: got %q", line, got)
		}
	}
}

// completed asks as the shells' scripts do. The last line names the directive.
func completed(t *testing.T, p program, line []string) []string {
	t.Helper()
	o := p.runHere(t, append([]string{"__complete"}, line...)...)
	if o.code != option.Done {
		t.Errorf("ended with status %d", o.code)
	}
	words := strings.Split(strings.TrimSpace(o.stdout), "\n")
	return words[:len(words)-1]
}

func TestEachShellCanReadItsScript(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		o := testProgram(nil).runHere(t, "completion", shell)
		o.wants(t, option.Done, o.stdout)
		if !strings.Contains(o.stdout, "delegated-ipam") {
			t.Errorf("the script of %s does not name the program:\n%s", shell, o.stdout)
		}
		if _, err := exec.LookPath(shell); err != nil || shell == "powershell" {
			t.Logf("%s is not here to read it", shell)
			continue
		}
		cmd := exec.Command(shell, "-n")
		cmd.Stdin = strings.NewReader(o.stdout)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s -n: %v\n%s", shell, err, out)
		}
	}
}
