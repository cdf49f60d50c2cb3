package options

import (
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

func validDaemon() Daemon {
	s, _ := NewDaemon(map[string]string{"K8S_NODE_NAME": "n"})
	s.Pools = map[string]string{"default": ""}
	return *s
}

func TestDaemonValidate(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*Daemon)
		words  []string
	}{
		{"a pod name with a line break", func(s *Daemon) { s.PodName = "a\nb" }, []string{"--pod-name", "metadata.name"}},
		{"no node name", func(s *Daemon) { s.NodeName = "" }, []string{"--node-name", `""`, "name of this node"}},
		{"both families off", func(s *Daemon) { s.EnableIPv4, s.EnableIPv6 = false, false }, []string{"--enable-ipv4", "--enable-ipv6"}},
		{"relative state directory", func(s *Daemon) { s.StateDir = "state" }, []string{"--state-dir", `"state"`, "absolute"}},
		{"relative socket path", func(s *Daemon) { s.SocketPath = "s" }, []string{"--socket-path", `"s"`, "absolute"}},
		{"interface name with a slash", func(s *Daemon) { s.CNIIfName = "a/b" }, []string{"--cni-ifname", "a/b", "eth0"}},
		{"interface name that is a directory", func(s *Daemon) { s.CNIIfName = ".." }, []string{"--cni-ifname", ".."}},
		{"mode with other bits", func(s *Daemon) { s.SocketMode = 0o4660 }, []string{"--socket-mode", "0660"}},
		{"mode without any bit", func(s *Daemon) { s.SocketMode = 0 }, []string{"--socket-mode", "0660"}},
		{"IPv6 address as IPv4 router", func(s *Daemon) { s.LocalRouterIPv4 = netip.MustParseAddr("fd00::1") }, []string{"--local-router-ipv4", "fd00::1", "an IPv4 address"}},
		{"unspecified router address", func(s *Daemon) { s.LocalRouterIPv4 = netip.IPv4Unspecified() }, []string{"--local-router-ipv4", "0.0.0.0"}},
		{"IPv4 router address in IPv6 form", func(s *Daemon) { s.LocalRouterIPv6 = netip.MustParseAddr("::ffff:1.2.3.4") }, []string{"--local-router-ipv6", "::ffff:1.2.3.4"}},
		{"IPv4 address as IPv6 router", func(s *Daemon) { s.LocalRouterIPv6 = netip.MustParseAddr("10.0.0.1") }, []string{"--local-router-ipv6", "10.0.0.1", "an IPv6 address"}},
		{"IPv4 range in IPv6 form", func(s *Daemon) { s.IPv6Range = netip.MustParsePrefix("::ffff:1.2.3.0/120") }, []string{"--ipv6-range", "::ffff:1.2.3.0"}},
		{"IPv6 range as IPv4 range", func(s *Daemon) { s.IPv4Range = netip.MustParsePrefix("fd00::/64") }, []string{"--ipv4-range", "fd00::/64"}},
		{"IPv4 range as IPv6 range", func(s *Daemon) { s.IPv6Range = netip.MustParsePrefix("10.0.0.0/24") }, []string{"--ipv6-range", "10.0.0.0/24"}},
		{"no CNI configuration", func(s *Daemon) { s.CNIConfDir = "" }, []string{"--cni-conf-dir", "--cni-conf-file"}},
		{"empty plugin directory", func(s *Daemon) { s.CNIBinDirs = []string{""} }, []string{"--cni-bin-dir"}},
		{"too many plugin processes", func(s *Daemon) { s.MaxPluginProcesses = 99999999999 }, []string{"--max-plugin-processes", "99999999999", "1024"}},
		{"no plugin process", func(s *Daemon) { s.MaxPluginProcesses = 0 }, []string{"--max-plugin-processes", "0", "1 to 1024"}},
		{"too many queued requests", func(s *Daemon) { s.MaxQueuedRequests = 1 << 30 }, []string{"--max-queued-requests", "1 to"}},
		{"no queued request", func(s *Daemon) { s.MaxQueuedRequests = -1 }, []string{"--max-queued-requests", "-1"}},
		{"empty owner pattern", func(s *Daemon) { s.Owners = []string{""} }, []string{"--owners", "empty"}},
		{"pool name with a slash", func(s *Daemon) { s.Pools["a/b"] = "n" }, []string{"--pool", "a/b"}},
		{"two pools on one network", func(s *Daemon) { s.Pools["a"], s.Pools["b"] = "n", "n" }, []string{"--pool", `"a"`, `"b"`, `"n"`}},
		{"two plugins of one network", func(s *Daemon) { s.Pools["a"], s.Pools["b"] = "n/p", "n/q" }, []string{"--pool", `"a"`, `"b"`, `"n"`}},
		{"no pool", func(s *Daemon) { s.Pools = nil }, []string{"--pool"}},
		{"negative release delay", func(s *Daemon) { s.ReleaseDelay = -time.Second }, []string{"--release-delay", "-1s"}},
		{"negative verify interval", func(s *Daemon) { s.VerifyInterval = -time.Second }, []string{"--verify-interval", "-1s"}},
		{"no plugin timeout", func(s *Daemon) { s.PluginTimeout = 0 }, []string{"--plugin-timeout", "0s"}},
		{"no expiration", func(s *Daemon) { s.IPAMExpiration = 0 }, []string{"--ipam-expiration", "0s"}},
		{"metrics address without a port", func(s *Daemon) { s.MetricsAddress = "host" }, []string{"--metrics-address", `"host"`, "host:port"}},
		{"two options", func(s *Daemon) { s.IPAMExpiration, s.StateDir = 0, "" }, []string{"--ipam-expiration", "--state-dir"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := validDaemon()
			tt.change(&s)
			wantWords(t, s.Validate(), tt.words...)
		})
	}
	if err := validDaemon().Validate(); err != nil {
		t.Error(err)
	}
}

func TestCompletePaths(t *testing.T) {
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	check.Must(t, err)
	s, _, err := resolve(t, nil, nil, "--socket-path=a.sock", "--state-dir=b", "--cni-conf-dir=./c", "--cni-conf-file=d", "--cni-bin-dir=e,/f", "--plugin-profile=p.json")
	check.Must(t, err)
	got, err := s.Complete()
	check.Must(t, err)
	for path, want := range map[string]string{
		got.SocketPath: "a.sock", got.StateDir: "b", got.CNIConfDir: "c", got.CNIConfFile: "d", got.CNIBinDirs[0]: "e", got.PluginProfiles[0]: "p.json",
	} {
		check.Equal(t, want, path, filepath.Join(here, want))
	}
	for _, o := range got.declare(nil) {
		if text := o.Value.String(); slices.Contains([]string{"path", "paths", "files"}, o.Value.Type()) && text != "" && o.Name != "cni-netns" && !filepath.IsAbs(text) {
			t.Errorf("--%s is %q; want an absolute path", o.Name, text)
		}
	}
	if got.CNIBinDirs[1] != "/f" || got.ConfigDir != "" {
		t.Errorf("got %s and %q; want /f and no configuration directory", got.CNIBinDirs[1], got.ConfigDir)
	}
	if s.SocketPath != "a.sock" || s.CNIBinDirs[0] != "e" {
		t.Errorf("the options themselves changed: %s, %s", s.SocketPath, s.CNIBinDirs)
	}
}

func TestCompletePools(t *testing.T) {
	for name, tt := range map[string]struct {
		args []string
		want map[string]string
	}{
		"default alone":           {nil, map[string]string{"default": ""}},
		"by --cni-network":        {[]string{"--cni-network=x"}, map[string]string{"default": "x"}},
		"by --pool":               {[]string{"--pool=default=x"}, map[string]string{"default": "x"}},
		"by both, the same":       {[]string{"--pool=default=x", "--cni-network=x"}, map[string]string{"default": "x"}},
		"beside another":          {[]string{"--pool=blue=b", "--cni-network=x"}, map[string]string{"default": "x", "blue": "b"}},
		"by both, another (none)": {[]string{"--pool=default=x", "--cni-network=y"}, nil},
		"another name":            {[]string{"--ipam-default-ip-pool=blue", "--cni-network=x"}, map[string]string{"blue": "x"}},
		"another name, by --pool": {[]string{"--ipam-default-ip-pool=blue", "--pool=blue=x"}, map[string]string{"blue": "x"}},
		"another name and a pool": {[]string{"--ipam-default-ip-pool=blue", "--pool=red=x"}, map[string]string{"blue": "", "red": "x"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, _, err := resolve(t, nil, nil, tt.args...)
			check.Must(t, err)
			got, err := s.Complete()
			if tt.want == nil {
				wantWords(t, err, "--pool", `"default=x"`, "--cni-network", `"y"`)
				return
			}
			if err != nil || !maps.Equal(got.Pools, tt.want) {
				t.Errorf("got %q, %v; want %q", got.Pools, err, tt.want)
			}
		})
	}
}

func TestDefaultPoolName(t *testing.T) {
	s, _, err := resolve(t, nil, nil, "--ipam-default-ip-pool=blue", "--pool=default=x")
	if err == nil {
		_, err = s.Complete()
	}
	wantWords(t, err, `--pool is "default=x"`, `--ipam-default-ip-pool is "blue"`)
	s, _, err = resolve(t, nil, nil, "--ipam-default-ip-pool=Blue")
	if err == nil {
		err = s.Validate()
	}
	wantWords(t, err, `--ipam-default-ip-pool is "Blue"`, "lower case")
}

func TestNames(t *testing.T) {
	host, err := os.Hostname()
	check.Must(t, err)
	for name, tt := range map[string]struct {
		env       map[string]string
		node, pod string
	}{
		"host name":           {nil, host, ""},
		"of the downward API": {map[string]string{"K8S_NODE_NAME": "worker-1", "K8S_POD_NAME": "delegated-ipam-x7k2p"}, "worker-1", "delegated-ipam-x7k2p"},
		"with a namespace":    {map[string]string{"K8S_POD_NAME": "kube-system/cilium-x7k2p"}, host, "kube-system/cilium-x7k2p"},
		"environment of ours": {map[string]string{
			"K8S_NODE_NAME": "worker-1", "DELEGATED_IPAM_NODE_NAME": "worker-2", "K8S_POD_NAME": "a", "DELEGATED_IPAM_POD_NAME": "b",
		}, "worker-2", "b"},
	} {
		t.Run(name, func(t *testing.T) {
			s, _, err := resolve(t, tt.env, nil)
			if err != nil || s.NodeName != tt.node || s.PodName != tt.pod {
				t.Fatalf("got %q and %q, %v; want %q and %q", s.NodeName, s.PodName, err, tt.node, tt.pod)
			}
			completed, err := s.Complete()
			if err != nil || completed.Validate() != nil {
				t.Errorf("refused: %v, %v", err, completed.Validate())
			}
		})
	}
}
