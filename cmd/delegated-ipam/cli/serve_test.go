package cli

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// serve runs `serve` with an app that ends immediately, and returns the configuration of the app.
func serve(t *testing.T, env map[string]string, args ...string) (daemon.Config, outcome) {
	t.Helper()
	d, got, calls := testDependencies(env), daemon.Config{}, 0
	d.serve = func(_ context.Context, c daemon.Config, _ logrus.FieldLogger) error {
		got, calls = c, calls+1
		return nil
	}
	o := d.exec(t, append([]string{"serve"}, args...)...)
	if (calls == 1) != (o.code == cmdline.ExitOK) {
		t.Errorf("the app was started %d times and the exit code is %d; want a start only with 0; stderr: %s", calls, o.code, o.stderr)
	}
	return got, o
}

func TestServeDefaults(t *testing.T) {
	got, o := serve(t, map[string]string{"K8S_NODE_NAME": "worker-1"})
	o.wants(t, cmdline.ExitOK, "")
	if got.MaxPluginProcesses < 4 {
		t.Errorf("at most %d plugin processes; want 4 or more", got.MaxPluginProcesses)
	}
	want := daemon.Config{Version: "v1.2.3", Daemon: options.Daemon{
		SocketPath: "/var/run/delegated-ipam/ipam.sock", SocketMode: 0o660, StateDir: "/var/lib/delegated-ipam",
		CNIConfDir: "/etc/cni/net.d", CNIBinDirs: []string{"/opt/cni/bin"}, IPAMDefaultIPPool: "default",
		Pools: map[string]string{"default": ""}, NodeName: "worker-1", EnableIPv4: true, EnableIPv6: true,
		Owners: []string{"*"}, HostLocal: plugin.HostLocalAuto, PluginTimeout: 30 * time.Second,
		MaxPluginProcesses: got.MaxPluginProcesses, // it depends on the machine
		MaxQueuedRequests:  1024, MaxAttachments: 10_000, VerifyInterval: 10 * time.Second, CNIIfName: "eth0",
		HealthDetails: options.HealthAll, IPAMExpiration: 10 * time.Minute,
		Log: options.Log{LogLevel: "info", LogFormat: "text"},
	}}
	got.Settings = nil
	check.Equal(t, "configuration", got, want)
}

func TestServeAllOptions(t *testing.T) {
	profile := filepath.Join(t.TempDir(), "p.json")
	put(t, profile, ownProfile)
	got, o := serve(t, nil,
		"--socket-path=/s/x.sock", "--socket-mode=0600", "--socket-group=root", "--allow-uids=1,2", "--allow-uids=3", "--allow-gids=4",
		"--state-dir=/s/state", "--cni-conf-dir=/s/conf", "--cni-conf-file=/s/conf/a.conflist", "--cni-bin-dir=/s/a,/s/b",
		"--cni-network=pods", "--ipam-default-ip-pool=white", "--pool=blue=blue-net", "--pool=red=red-net,green=green-net", "--node-name=n", "--pod-name=ns/p",
		"--enable-ipv4=false", "--enable-ipv6", "--local-router-ipv4=10.0.0.1", "--local-router-ipv6=fd00::1",
		"--ipv4-range=10.0.0.0/24", "--ipv6-range=fd00::/64", "--exclude-addresses=10.0.0.1,fd00::/120", "--exclude-addresses=10.0.0.8/29", "--owners=router,kube-system/*", "--owners=health", "--retire-owners",
		"--plugin-profile="+profile, "--host-local=program", "--accept-unsafe-plugin", "--single-node", "--plugin-timeout=5s", "--plugin-env=HTTP_PROXY,NO_PROXY", "--max-plugin-processes=7",
		"--max-queued-requests=8", "--max-attachments=9", "--verify-interval=0s", "--cni-netns=/n", "--cni-ifname=net0", "--release-delay=1m", "--warm-leases=5", "--missing-netns-release-delay=3m",
		"--ipam-expiration=2m", "--metrics-address=:9967", "--log-level=error", "--log-format=json", "--health-details=authorized")
	o.wants(t, cmdline.ExitOK, "")
	want := daemon.Config{Version: "v1.2.3", Daemon: options.Daemon{
		SocketPath: "/s/x.sock", SocketMode: 0o600, SocketGroup: "root", AllowUIDs: []int{1, 2, 3}, AllowGIDs: []int{4}, HealthDetails: options.HealthAuthorized,
		StateDir: "/s/state", CNIConfDir: "/s/conf", CNIConfFile: "/s/conf/a.conflist", CNIBinDirs: []string{"/s/a", "/s/b"}, CNINetwork: "pods", IPAMDefaultIPPool: "white",
		Pools:    map[string]string{"white": "pods", "blue": "blue-net", "red": "red-net", "green": "green-net"},
		NodeName: "n", PodName: "ns/p", EnableIPv6: true,
		LocalRouterIPv4: netip.MustParseAddr("10.0.0.1"), LocalRouterIPv6: netip.MustParseAddr("fd00::1"),
		IPv4Range: netip.MustParsePrefix("10.0.0.0/24"), IPv6Range: netip.MustParsePrefix("fd00::/64"),
		ExcludeAddresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32"), netip.MustParsePrefix("fd00::/120"), netip.MustParsePrefix("10.0.0.8/29")},
		Owners:           []string{"router", "kube-system/*", "health"}, RetireOwners: true,
		HostLocal: plugin.HostLocalProgram, PluginProfiles: []string{profile}, AcceptUnsafePlugin: true, SingleNode: true, PluginTimeout: 5 * time.Second, PluginEnv: []string{"HTTP_PROXY", "NO_PROXY"},
		MaxPluginProcesses: 7, MaxQueuedRequests: 8, MaxAttachments: 9, CNINetNS: "/n", CNIIfName: "net0",
		ReleaseDelay: time.Minute, WarmLeases: 5, MissingNetNSReleaseDelay: 3 * time.Minute, IPAMExpiration: 2 * time.Minute, MetricsAddress: ":9967",
		Log: options.Log{LogLevel: "error", LogFormat: "json"},
	}}
	for _, s := range got.Settings() {
		if s.Source != options.FromFlag && s.Name != "config-dir" {
			t.Errorf("--%s is not part of this test", s.Name)
		}
	}
	got.Settings = nil
	check.Equal(t, "configuration", got, want)
}

func TestServeFails(t *testing.T) {
	d := testDependencies(nil)
	d.serve = func(context.Context, daemon.Config, logrus.FieldLogger) error { return errors.New("the disk is full") }
	d.exec(t, "serve", "--node-name=n").wants(t, cmdline.ExitFailed, "", "Error: serve: the disk is full")
}

func TestServeRelativePaths(t *testing.T) {
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	check.Must(t, err)
	got, o := serve(t, nil, "--state-dir=b")
	o.wants(t, cmdline.ExitOK, "")
	check.Equal(t, "state directory", got.StateDir, filepath.Join(here, "b"))
	for _, s := range got.Settings() {
		if s.Name == "state-dir" && s.Value != "b" {
			t.Errorf("the status reports %s; want the value as it was given", s.Value)
		}
	}
}

func TestServeLog(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "owners~"), "router")
	put(t, filepath.Join(dir, "owners"), "router")
	for name, tt := range map[string]struct {
		env   map[string]string
		args  []string
		words []string
		// lines is their number; 0 for any.
		lines int
	}{
		"unknown variable": {
			map[string]string{"DELEGATED_IPAM_SERVICE_HOST": "10.0.0.1", "OTHER": "x", "DELEGATED_IPAM_OWNERS": "router", "DELEGATED_IPAM_CONFIG_DIR": ""},
			nil,
			[]string{"level=warning", "DELEGATED_IPAM_SERVICE_HOST"},
			1,
		},
		"skipped file": {nil, []string{"--config-dir=" + dir}, []string{"level=warning", filepath.Join(dir, "owners~")}, 1},
		"options": {
			map[string]string{"DELEGATED_IPAM_OWNERS": "router"},
			[]string{"--log-level=debug", "--log-format=json"},
			[]string{`"owners":"router (environment)"`, `"log-level":"debug (flag)"`, `"state-dir":"/var/lib/delegated-ipam (default)"`},
			0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, o := serve(t, tt.env, tt.args...)
			o.wants(t, cmdline.ExitOK, "", tt.words...)
			if n := strings.Count(o.stderr, "\n"); tt.lines > 0 && n != tt.lines {
				t.Errorf("%d lines were logged; want %d: %s", n, tt.lines, o.stderr)
			}
		})
	}
}

func TestReread(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "owners"), "router")
	_, set := options.NewDaemon(nil)
	check.Must(t, set.Flags().Parse([]string{"--config-dir=" + dir, "--plugin-env=A,B"}))
	check.Must(t, set.Resolve(nil))
	log := logrus.New()
	var out bytes.Buffer
	log.SetOutput(&out)
	o, running := serveOptions{set: set}, set.Settings()
	for _, step := range []struct {
		name, file, value, logged string
		level                     logrus.Level
	}{
		{"level", "log-level", "debug", "is applied", logrus.DebugLevel},
		{"another option", "owners", "health", "need a restart", logrus.DebugLevel},
		{"invalid value", "verify-interval", "soon", "level=error", logrus.DebugLevel},
		{"valid again", "verify-interval", "10s", "is applied", logrus.DebugLevel},
		{"default in a file", "log-level", "info", "is applied", logrus.InfoLevel},
	} {
		t.Run(step.name, func(t *testing.T) {
			put(t, filepath.Join(dir, step.file), step.value)
			out.Reset()
			running = o.reread(log, running)
			for _, s := range running {
				want := map[string]string{"log-level": step.level.String(), "owners": "router", "plugin-env": "A,B"}[s.Name]
				if want != "" && s.Value != want {
					t.Errorf("%s is %q; want %q", s.Name, s.Value, want)
				}
			}
			check.Equal(t, "level", log.GetLevel(), step.level)
			check.Contains(t, out.String(), step.logged)
		})
	}
}
