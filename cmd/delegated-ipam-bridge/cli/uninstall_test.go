package cli

import (
	"testing"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
	"github.com/delegated-ipam/delegated-ipam/test/bridge/apiserver"
)

// internal/fleet tests the steps.
func TestUninstallRefused(t *testing.T) {
	s := serveCluster(t, false)
	s.Add("pods", apiserver.Object{
		"metadata": apiserver.Object{"name": "web", "namespace": "default"}, "spec": apiserver.Object{"nodeName": "worker-1"},
		"status": apiserver.Object{"phase": "Running", "startTime": "2026-11-22T15:04:05Z", "podIPs": []any{apiserver.Object{"ip": "10.0.1.1"}}},
	})
	// Before anything is deleted.
	runOn(t, s, "uninstall", "prepare").wants(t, cmdline.ExitFailed,
		[]string{"uninstall prepare: 1 addresses of the pools belong to pods, such as 10.0.1.1 of default/web on worker-1"})
}
