package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

func TestHolder(t *testing.T) {
	const own = "cilium-agent-router-0123456789abcdef"
	held := `[{"owner":"router","pod":"shop/web-0","pool":"default","network":"pods","container-id":"` + own + `","interface":"eth0","state":"held","created":"2026-03-01T11:00:00Z","changed":"2026-03-01T11:00:00Z","claims":["ipv4"],"lost":true,
		"addresses":[{"family":"ipv4","ip":"10.15.0.2"},{"family":"ipv6","ip":"fd00::2"}],"given-up":["10.15.0.9"]}]`
	attachment := `Owner: router
 Pod: shop/web-0
 Pool: default
 State: held, for 1h
 Addresses: 10.15.0.2, fd00::2
 Container ID: ` + own + `
 Note: lost: the plugin does not hold the addresses any more
`
	lease := func(of, id string) string {
		return "Lease: " + of + "\n Container ID: " + id + "\n Interface: eth0\n Written: 1m ago\n File: DIR/pods/10.15.0.2\n"
	}
	for name, tt := range map[string]struct {
		list, lease, ip string
		code            int
		want            string
		words           []string
	}{
		"attachment and lease": {held, own, "10.15.0.2", cmdline.ExitOK, "State: held\n" + attachment + lease("of the owner above", own), nil},
		"attachment alone":     {held, "", "10.15.0.2", cmdline.ExitOK, "State: held\n" + attachment, nil},
		"other family":         {held, own, "fd00::2", cmdline.ExitOK, "State: held\n" + attachment, nil},
		"given up":             {held, own, "10.15.0.9", cmdline.ExitOK, "State: held\n" + attachment, nil},
		"a pod's lease":        {"[]", "0123abcd", "10.15.0.2", cmdline.ExitOK, "State: held\n" + lease("of another client of the plugin than delegated-ipam", "0123abcd"), nil},
		"leak":                 {"[]", own, "10.15.0.2", cmdline.ExitOK, "State: held\n" + lease("of delegated-ipam, without an attachment (see doctor)", own), nil},
		"conflict":             {held, "0123abcd", "10.15.0.2", exitConflict, "State: conflict\n" + attachment + lease("of another client of the plugin than delegated-ipam", "0123abcd"), []string{"10.15.0.2 is in conflict"}},
		"not held":             {held, own, "10.15.0.5", exitNotHeld, "State: not-held\n", []string{"10.15.0.5 is not held"}},
		"IPv4 in IPv6":         {held, own, "::ffff:10.15.0.2", cmdline.ExitOK, "State: held\n" + attachment + lease("of the owner above", own), nil},
		"empty file":           {"[]", own, "10.15.0.3", exitNotHeld, "State: not-held\nLeases unknown: DIR/pods/10.15.0.3: names no container ID\n", []string{"is not held"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, empty := startWithStore(t)
			dir := filepath.Dir(filepath.Dir(empty))
			s.responses["GET /v1/ipam"] = []response{jsonResponse(200, tt.list)}
			if file := filepath.Join(filepath.Dir(empty), "10.15.0.2"); tt.lease != "" {
				put(t, file, tt.lease+"\r\neth0")
				check.Must(t, os.Chtimes(file, time.Time{}, noon().Add(-time.Minute)))
			}
			o := s.dependencies().exec(t, "holder", tt.ip)
			o.stdout = strings.ReplaceAll(regexp.MustCompile(` +`).ReplaceAllString(o.stdout, " "), dir, "DIR")
			o.wants(t, tt.code, "Address: "+strings.TrimPrefix(tt.ip, "::ffff:")+"\n"+tt.want, tt.words...)
		})
	}
}

// Without a daemon the store is read by the options of serve.
func TestHolderWithoutDaemon(t *testing.T) {
	s, empty := startWithStore(t)
	dir := filepath.Dir(filepath.Dir(empty))
	put(t, filepath.Join(filepath.Dir(empty), "10.15.0.2"), "0123abcd\r\neth0")
	d := testDependencies(map[string]string{options.SocketEnv: s.socket + "2"})
	flags := []string{"--cni-conf-dir=" + dir, "--cni-bin-dir=" + dir, "-o=json"}
	o := d.exec(t, append([]string{"holder", "10.15.0.2"}, flags...)...)
	o.wantsAnyOutput(t, cmdline.ExitOK, "the attachments are not known", "no daemon can be reached")
	var got holders
	if err := json.Unmarshal([]byte(o.stdout), &got); err != nil || got.State != "held" || len(got.Leases) != 1 || got.Leases[0].ContainerID != "0123abcd" || got.Leases[0].Own {
		t.Errorf("got %s, %v; want the lease", o.stdout, err)
	}
	d.exec(t, append([]string{"holder", "10.15.0.4"}, flags...)...).wants(t, cmdline.ExitFailed, "", "no daemon can be reached")
	d.exec(t, "holder", "10.15.0.2/24").wants(t, cmdline.ExitUsage, "", "expected an address")
}

// The daemon keeps a network that it has read; here its store is unknown.
func TestHolderWithoutConfiguration(t *testing.T) {
	s, empty := startWithStore(t)
	dir := filepath.Dir(filepath.Dir(empty))
	holder := func(want string, flags ...string) {
		t.Helper()
		if o := s.dependencies().exec(t, append([]string{"holder", "10.15.0.5"}, flags...)...); !strings.Contains(o.stdout, "Leases unknown:") || !strings.Contains(o.stdout, want) {
			t.Errorf("printed %s; want %q", o.stdout, want)
		}
	}
	check.Must(t, os.Remove(filepath.Join(dir, "05-cilium.conflist")))
	holder("no CNI configuration in directory " + dir)
	s.responses["GET /v1/healthz"] = nil
	holder("--config-dir", "--config-dir="+dir+"/none")
}
