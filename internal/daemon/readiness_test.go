package daemon

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

func TestLogReadiness(t *testing.T) {
	for name, delay := range map[string]string{
		"fast plugin":               "",
		"slower than reportTimeout": "sleep 1\n",
	} {
		t.Run(name, func(t *testing.T) {
			c := valid(t)
			log, ended, stop := run(t, c)
			log.await(t, `msg="Not ready"`, ended)
			write(t, c, "bin/plugin", "#!/bin/sh\n"+delay+"echo '{\"cniVersion\":\"1.0.0\",\"supportedVersions\":[\"1.0.0\"]}'\n")
			check.Must(t, os.Chmod(filepath.Join(c.CNIBinDirs[0], "plugin"), 0o755))
			write(t, c, "net.d/1.conflist", `{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"cilium-cni","ipam":{"type":"plugin"}}]}`)
			log.await(t, "msg=Ready", ended)
			check.NoError(t, stop())
			if text := log.text.String(); strings.Count(text, `msg="Not ready"`) != 1 {
				t.Errorf("the log has more than one line \"Not ready\":\n%s", text)
			}
		})
	}
}

// After a request has failed because of the state directory, the status is not an earlier one.
func TestReplacedStateDirInStatus(t *testing.T) {
	c := withSmallPlugin(t)
	log, ended, stop := run(t, c)
	log.await(t, "msg=Ready", ended)
	check.Must(t, os.Rename(c.StateDir, c.StateDir+".old"))
	request(t, c, http.MethodPost, "/v1/ipam?owner=router", http.StatusBadGateway)
	if status := health(t, c); status.DelegatedIpam.Ready {
		t.Error("ready without a state directory")
	}
	check.NoError(t, stop())
}
