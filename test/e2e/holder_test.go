package e2e

import (
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// In a pod each daemon has PID 1 and the host name of the node, so both locks name the pod.
func TestHolderIsPod(t *testing.T) {
	t.Parallel()
	const pod = "pod kube-system/delegated-ipam-x7k2p since 20"
	n := nodeWith(t, harness.DualStack())
	n.Env = append(n.Env, "K8S_POD_NAME=kube-system/delegated-ipam-x7k2p")
	first := n.Start(t)
	first.WaitLog(t, "podName=kube-system/delegated-ipam-x7k2p")
	t.Run("startup", func(t *testing.T) {
		n.Launch(t).WaitLog(t, "another process holds: "+pod)
	})
	t.Run("doctor", func(t *testing.T) {
		doctorWithOptions(t, n, nil, "--socket-path="+n.Dir+"/second.sock", "--state-dir="+n.Dir+"/second").
			wantProblems(t, []string{"error daemon", "error plugin"}, pod, n.StateDir)
	})
}
