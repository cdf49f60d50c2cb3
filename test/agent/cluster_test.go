package agent

import (
	"fmt"
	"os"
	"testing"
	"time"
)

const (
	apiURL = "https://" + apiHost + ":6443"
	// The tokens identify the clients. The agent is an administrator, because the RBAC rules of
	// Cilium's chart are not tested here.
	adminToken  = "admin"
	bridgeToken = "bridge"
	// bridgeUser is the service account of deploy/kubernetes/bridge.
	bridgeUser = "system:serviceaccount:kube-system:delegated-ipam-bridge"
)

// startCluster starts etcd and the API server, and creates the node, Cilium's CRDs and the RBAC
// rules of the bridge.
func (tb *testbed) startCluster(t *testing.T) {
	t.Helper()
	files := tb.makeCertificates(t)
	tokens := tb.path("tokens.csv")
	must(t, os.WriteFile(tokens, fmt.Appendf(nil, "%s,admin,1,system:masters\n%s,%s,2,\"system:serviceaccounts,system:authenticated\"\n", adminToken, bridgeToken, bridgeUser), 0o600))

	tb.inCluster(t, "etcd", "etcd",
		"--data-dir="+tb.path("etcd"),
		"--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379",
		"--listen-peer-urls=http://127.0.0.1:2380", "--initial-advertise-peer-urls=http://127.0.0.1:2380",
		"--initial-cluster=default=http://127.0.0.1:2380",
		"--unsafe-no-fsync=true", // it is never killed
	).mustStart(t)
	tb.apiServer = tb.inCluster(t, "kube-apiserver", tb.bin("kube-apiserver"),
		"--etcd-servers=http://127.0.0.1:2379",
		"--bind-address=0.0.0.0", "--secure-port=6443", "--advertise-address="+apiHost,
		"--tls-cert-file="+files.serving, "--tls-private-key-file="+files.servingKey,
		"--token-auth-file="+tokens, "--authorization-mode=RBAC",
		"--service-account-key-file="+files.accountPublic, "--service-account-signing-key-file="+files.accountKey,
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-cluster-ip-range=10.96.0.0/16,fd00:96::/112",
		"--disable-admission-plugins=ServiceAccount", // no controller creates the accounts of pods
		"--profiling=false",
	)
	tb.apiServer.mustStart(t)

	tb.kube = newKube(t, tb.writeKubeconfig(t, "admin", files.serving, adminToken))
	tb.writeKubeconfig(t, "bridge", files.serving, bridgeToken)
	mustEventually(t, "the API server to be ready", 3*time.Minute, tb.kube.ready)
	tb.kube.createKinds(t, tb.built)
	tb.kube.createNode(t, tb.nodeIPs)
	tb.kube.apply(t, tb.root+"/deploy/kubernetes/bridge/rbac.yaml")
}

// inCluster defines a program in the cluster's network namespace.
func (tb *testbed) inCluster(t *testing.T, name string, args ...string) *program {
	t.Helper()
	return tb.newProgram(t, name, nil, append([]string{"ip", "netns", "exec", clusterNetns}, args...)...)
}

func (tb *testbed) writeKubeconfig(t *testing.T, name, ca, token string) string {
	t.Helper()
	file := tb.kubeconfig(name)
	must(t, os.WriteFile(file, fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: test, user: {token: %q}}]
contexts: [{name: test, context: {cluster: test, user: test}}]
current-context: test
`, apiURL, ca, token), 0o600))
	return file
}

func (tb *testbed) kubeconfig(name string) string { return tb.path(name + ".kubeconfig") }
