package agent

import (
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/cluster"
)

// bridgeAccount is the service account of deploy/kubernetes/base/bridge. The agent is an administrator,
// because the RBAC rules of Cilium's chart are not tested here.
const bridgeAccount = "kube-system:delegated-ipam-bridge"

// startCluster starts etcd and the API server in the cluster's network namespace, and creates the
// node, Cilium's CRDs and the RBAC rules of the bridge.
func (tb *testbed) startCluster(t *testing.T) {
	t.Helper()
	c := cluster.Start(t, cluster.Config{
		Dir:             tb.dir,
		APIServer:       tb.bin("kube-apiserver"),
		Host:            apiHost,
		Exec:            []string{"ip", "netns", "exec", clusterNetns},
		ServiceAccounts: []string{bridgeAccount},
	})
	tb.apiServer = c.APIServer
	tb.kube = &kube{c.Kube}
	c.WriteKubeconfig(t, "bridge", bridgeAccount, "default")
	tb.kube.CreateKinds(t, tb.built+"/crds") // as Cilium's operator does
	tb.kube.createNode(t, nodeName, tb.nodeIPs)
	tb.kube.Apply(t, tb.root+"/deploy/kubernetes/base/bridge/rbac.yaml")
}

// kubeconfig returns the file of a client: "admin" or "bridge".
func (tb *testbed) kubeconfig(name string) string { return tb.path(name + ".kubeconfig") }

// newProgram defines a program of the node.
func (tb *testbed) newProgram(t *testing.T, name string, env []string, args ...string) *cluster.Program {
	t.Helper()
	return cluster.NewProgram(t, tb.dir, name, env, args...)
}
