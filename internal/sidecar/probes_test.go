package sidecar

import (
	"net/http"
	"os"
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

// After a request has failed because of the state directory, the status is not an earlier one.
func TestReplacedStateDirInStatus(t *testing.T) {
	c := withSmallPlugin(t)
	log, ended, stop := run(t, c)
	log.await(t, "msg=Ready", ended)
	if err := os.Rename(c.StateDir, c.StateDir+".old"); err != nil {
		t.Fatal(err)
	}
	request(t, c, http.MethodPost, "/v1/ipam?owner=router", http.StatusBadGateway)
	if status := health(t, c); status.DelegatedIpam.Ready {
		t.Error("ready without a state directory")
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
