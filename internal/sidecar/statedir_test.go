package sidecar

import (
	"net/http"
	"os"
	"testing"
)

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
