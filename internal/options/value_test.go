package options

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// Each value that a flag prints must be one that it reads: doctor sets the options of the daemon
// from its status.
func TestValuesRoundTrip(t *testing.T) {
	args := []string{
		"--socket-mode=0600", "--allow-uids=1,2", "--allow-uids=3", "--cni-bin-dir=/a,/b", "--pool=b=y,a=x", "--enable-ipv4=false", "--retire-owners", "--exclude-addresses=10.0.0.1,fd00::/120",
		"--local-router-ipv4=10.0.0.1", "--ipv6-range=fd00::/64", "--plugin-timeout=90s", "--max-queued-requests=7", "--log-level=WARN", "--owners=",
	}
	_, set, err := resolve(t, nil, nil, args...)
	check.Must(t, err)
	_, again := NewDaemon(nil)
	for _, s := range set.Settings() {
		if known, err := again.Set(s.Name, s.Value); !known || err != nil {
			t.Errorf("--%s=%s: known %t, %v", s.Name, s.Value, known, err)
		}
		check.Equal(t, s.Name, again.Setting(s.Name).Value, s.Value)
	}
	for name, want := range map[string]string{
		"socket-mode": "0600", "allow-uids": "1,2,3", "pool": "a=x,b=y", "enable-ipv4": "false", "retire-owners": "true", "plugin-timeout": "1m30s", "log-level": "warning", "exclude-addresses": "10.0.0.1/32,fd00::/120", "owners": "",
	} {
		if got := set.Setting(name).Value; got != want {
			t.Errorf("--%s is %q; want %q", name, got, want)
		}
	}
	if known, err := again.Set("of-the-future", "1"); known || err != nil {
		t.Errorf("an unknown option: known %t, %v", known, err)
	}
}

func TestAddresses(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "10.0.0.1": "10.0.0.1/32", "FD00::1, 10.0.0.0/30": "fd00::1/128,10.0.0.0/30", "::ffff:10.0.0.1": "10.0.0.1/32", "10.0.0.1\n10.0.0.2\n": "10.0.0.1/32,10.0.0.2/32",
	} {
		var got []netip.Prefix
		v := Addresses(&got)
		if err := v.Set(text); err != nil || v.String() != want {
			t.Errorf("%q is %q, %v; want %q", text, v, err, want)
		}
	}
	for _, text := range []string{"node", "10.0.0.5/24", "fe80::1%eth0", "fe80::%eth0/64", "10.0.0.0/33", "10.0.0.1-10.0.0.9", "::ffff:10.0.0.0/120"} {
		if err := Addresses(new([]netip.Prefix)).Set(text); err == nil || !strings.Contains(err.Error(), "expected IP addresses and prefixes") {
			t.Errorf("%q: %v; want an error that names what is expected", text, err)
		}
	}
}

func TestListenAddress(t *testing.T) {
	for text, want := range map[string]string{"": "", ":9966": "127.0.0.1:9966", "0.0.0.0:9966": "0.0.0.0:9966", "[::]:9966": "[::]:9966"} {
		if got, err := ListenAddress(text); got != want || err != nil {
			t.Errorf("%q gives %q, %v; want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"9966", "host", "::1:9966x", ":no-such-service", ":99999", "unix:///run/x"} {
		if got, err := ListenAddress(text); err == nil || !strings.Contains(err.Error(), "--metrics-address is ") || !strings.Contains(err.Error(), "host:port") {
			t.Errorf("%q gives %q, %v; want an error with the option and what it expects", text, got, err)
		}
	}
}

func TestHost(t *testing.T) {
	for name, tt := range map[string]struct {
		env  map[string]string
		args []string
		want string
	}{
		"default":                 {nil, nil, "/var/run/delegated-ipam/ipam.sock"},
		"environment":             {map[string]string{"CILIUM_SOCK": "/s"}, nil, "/s"},
		"environment with scheme": {map[string]string{"CILIUM_SOCK": "unix:///s"}, nil, "/s"},
		"environment of no path":  {map[string]string{"CILIUM_SOCK": "gopher://x"}, nil, "gopher://x"},
		"flag":                    {map[string]string{"CILIUM_SOCK": "/s"}, []string{"--host=unix:///t"}, "/t"},
		"flag without scheme":     {nil, []string{"-H", "/t"}, "/t"},
	} {
		t.Run(name, func(t *testing.T) {
			var target string
			flags := pflag.NewFlagSet("x", pflag.ContinueOnError)
			Register(flags, Host(&target, tt.env))
			if err := flags.Parse(tt.args); err != nil || Socket(target) != tt.want {
				t.Errorf("got %s, %v; want %s", target, err, tt.want)
			}
		})
	}
	for _, text := range []string{"gopher://x", "unix://", ""} {
		var target string
		if err := Host(&target, nil).Value.Set(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

func TestBridgeValidate(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*Bridge)
		word   string
	}{
		"no node name":       {func(b *Bridge) { b.NodeName = "" }, "--node-name"},
		"no pool":            {func(b *Bridge) { b.Pool = "" }, "--pool"},
		"no release delay":   {func(b *Bridge) { b.ReleaseDelay = 0 }, "--excess-ip-release-delay"},
		"negative minimum":   {func(b *Bridge) { b.MinAllocate = -1 }, "--min-allocate"},
		"none in reserve":    {func(b *Bridge) { b.PreAllocate = -1 }, "--pre-allocate"},
		"negative watermark": {func(b *Bridge) { b.MaxAboveWatermark = -1 }, "--max-above-watermark"},
		"negative maximum":   {func(b *Bridge) { b.MaxAllocate = -1 }, "--max-allocate"},
		"metrics address":    {func(b *Bridge) { b.MetricsAddress = "x" }, "--metrics-address"},
	} {
		t.Run(name, func(t *testing.T) {
			b, _ := NewBridge(map[string]string{"K8S_NODE_NAME": "n"})
			if err := b.Validate(); err != nil {
				t.Fatalf("the defaults: %v", err)
			}
			tt.change(b)
			wantWords(t, b.Validate(), tt.word, "expected")
		})
	}
}
