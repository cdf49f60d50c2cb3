package sidecar

import (
	"testing"

	"github.com/delegated-ipam/delegated-ipam/api/models"
)

// A pool whose plugin is missing and its attachments have the same cause, which is reported once.
func TestMissingPluginReason(t *testing.T) {
	const cause = `failed to find plugin "host-local" in path [/bin]; put the plugin there`
	p := movedPlugin{models.MovedPlugin{Pool: "default", Error: "/bin/host-local no longer exists: " + cause}, cause}
	const alone = `pool "default": attachments cannot be verified or released: /bin/host-local no longer exists: ` + cause
	for name, tt := range map[string]struct {
		others []string
		want   string
	}{
		"alone":          {nil, alone},
		"another plugin": {[]string{`pool "default": failed to find plugin "static" in path [/bin]; put the plugin there`}, alone},
		"same plugin":    {[]string{`pool "blue": /x`, `pool "default": network "pods": ` + cause}, `pool "default": attachments cannot be verified or released: /bin/host-local no longer exists`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := p.reason(tt.others); got != tt.want {
				t.Errorf("got %s; want %s", got, tt.want)
			}
		})
	}
}
