package plugin

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/hostlocal"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

func TestCheckAddresses(t *testing.T) {
	const (
		v4, v6 = `"ranges":[[{"subnet":"10.1.0.0/24"}]]`, `"ranges":[[{"subnet":"fd00::/120"}]]`
		ips    = `{"ips":true}`
	)
	for name, c := range map[string]struct {
		ipam, capabilities string
		v4, v6, containers bool
		want               string
	}{
		"one family":                 {`{"type":"host-local",` + v4 + `}`, `{}`, true, false, false, ""},
		"two of which one is off":    {`{"type":"host-local",` + twoRanges + `}`, `{}`, true, false, false, ""},
		"one of two has ranges":      {`{"type":"host-local",` + v4 + `}`, `{}`, true, true, false, ""},
		"the other family":           {`{"type":"host-local",` + v6 + `}`, `{}`, true, false, false, "ipv6 addresses alone, and only ipv4 is enabled; expected --enable-ipv6"},
		"ipv6 alone":                 {`{"type":"host-local",` + v4 + `}`, `{}`, false, true, false, "ipv4 addresses alone, and only ipv6 is enabled; expected --enable-ipv4"},
		"old form":                   {`{"type":"host-local","subnet":"10.1.0.0/24"}`, `{}`, false, true, false, "ipv4 addresses alone"},
		"the other for containers":   {`{"type":"host-local",` + v6 + `}`, `{}`, true, false, true, ""},
		"unknown options":            {`{"type":"host-local",` + v6 + `}`, `{}`, false, false, false, ""},
		"refused by the plugin":      {`{"type":"host-local"}`, `{}`, true, false, false, ""},
		"not of host-local":          {`{"type":"scripted",` + v6 + `}`, `{}`, true, false, false, ""},
		"resolvConf":                 {`{"type":"host-local",` + v4 + `,"resolvConf":"DIR/resolv.conf"}`, `{}`, true, false, false, ""},
		"no resolvConf":              {`{"type":"host-local",` + v4 + `,"resolvConf":"DIR/none"}`, `{}`, true, true, true, "DIR/none (ipam.resolvConf): no such file or directory"},
		"directory as resolvConf":    {`{"type":"host-local",` + v4 + `,"resolvConf":"DIR"}`, `{}`, true, true, false, "(ipam.resolvConf): not a regular file"},
		"large file as resolvConf":   {`{"type":"host-local",` + v4 + `,"resolvConf":"DIR/large"}`, `{}`, true, true, false, "(ipam.resolvConf): larger than"},
		"static":                     {`{"type":"static","addresses":[{"address":"10.1.0.9/24"}]}`, `{}`, true, false, false, ""},
		"static, the other family":   {`{"type":"static","addresses":[{"address":"fd00::9/64"}]}`, `{}`, true, false, false, "ipv6 addresses alone"},
		"static without addresses":   {`{"type":"static","addresses":[]}`, `{}`, true, true, false, "plugin static returns the ipam.addresses of its configuration, and there are none"},
		"static, not a prefix":       {`{"type":"static","addresses":[{"address":"10.1.0.9"}]}`, `{}`, true, true, false, `ipam.addresses with "10.1.0.9"; expected an address with a prefix length`},
		"static, from the runtime":   {`{"type":"static"}`, ips, true, true, false, ""},
		"static, through containers": {`{"type":"static"}`, `{}`, true, true, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := imitate(t, "host-local", func(o *Options) { o.EnableIPv4, o.EnableIPv6 = c.v4, c.v6 })
			for _, other := range []string{"static", fakeType} {
				check.Must(t, os.Symlink(filepath.Join(f.bin, "host-local"), filepath.Join(f.bin, other)))
			}
			f.write("resolv.conf", "nameserver 10.0.0.1\n")
			f.write("large", strings.Repeat("#", hostlocal.MaxResolvConf+1))
			f.configure(c.ipam, c.capabilities)
			f.network.File, f.network.ServesContainers = "/net.d/05.conflist", c.containers
			err := f.runner.CheckAddresses(f.network, f.invocation("id"))
			if c.want == "" {
				check.Must(t, err)
				return
			}
			wantText(t, err, `/net.d/05.conflist: network "net": `)
			wantText(t, err, strings.ReplaceAll(c.want, "DIR", f.dir))
		})
	}
}
