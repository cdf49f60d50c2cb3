package agent

import (
	"fmt"
	"os"
	"testing"
	"time"
)

const (
	apiURL = "https://" + apiHost + ":6443"
	// The tokens say who calls. The agent may do everything: what Cilium's chart
	// allows it is not what is tried here.
	adminToken  = "lab-admin"
	bridgeToken = "lab-bridge"
	// bridgeUser is the service account of deploy/kubernetes/bridge.
	bridgeUser = "system:serviceaccount:kube-system:delegated-ipam-bridge"
)

// startCluster starts etcd and the API server and tells it of the node, of
// Cilium's kinds, and of what the bridge may do.
func (l *lab) startCluster(t *testing.T) {
	t.Helper()
	files := l.makeCertificates(t)
	tokens := l.path("tokens.csv")
	must(t, os.WriteFile(tokens, fmt.Appendf(nil, "%s,admin,1,system:masters\n%s,%s,2,\"system:serviceaccounts,system:authenticated\"\n", adminToken, bridgeToken, bridgeUser), 0o600))

	l.inCluster(t, "etcd", "etcd",
		"--data-dir="+l.path("etcd"),
		"--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379",
		"--listen-peer-urls=http://127.0.0.1:2380", "--initial-advertise-peer-urls=http://127.0.0.1:2380",
		"--initial-cluster=default=http://127.0.0.1:2380",
		"--unsafe-no-fsync=true", // it is never killed, and the disk is shared
	).mustStart(t)
	l.apiServer = l.inCluster(t, "kube-apiserver", l.bin("kube-apiserver"),
		"--etcd-servers=http://127.0.0.1:2379",
		"--bind-address=0.0.0.0", "--secure-port=6443", "--advertise-address="+apiHost,
		"--tls-cert-file="+files.serving, "--tls-private-key-file="+files.servingKey,
		"--token-auth-file="+tokens, "--authorization-mode=RBAC",
		"--service-account-key-file="+files.accountPublic, "--service-account-signing-key-file="+files.accountKey,
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-cluster-ip-range=10.96.0.0/16,fd00:96::/112",
		"--disable-admission-plugins=ServiceAccount", // no controller makes the accounts of pods
		"--profiling=false",
	)
	l.apiServer.mustStart(t)

	l.kube = newKube(t, l.writeKubeconfig(t, "admin", files.serving, adminToken))
	l.writeKubeconfig(t, "bridge", files.serving, bridgeToken)
	mustEventually(t, "the API server to be ready", 3*time.Minute, l.kube.ready)
	l.kube.createKinds(t, l.built)
	l.kube.createNode(t, l.nodeIPs)
	l.kube.apply(t, l.root+"/deploy/kubernetes/bridge/rbac.yaml")
}

// inCluster defines a program that runs in the cluster's network.
func (l *lab) inCluster(t *testing.T, name string, args ...string) *program {
	t.Helper()
	return l.define(t, name, nil, append([]string{"ip", "netns", "exec", clusterNetns}, args...)...)
}

func (l *lab) writeKubeconfig(t *testing.T, name, ca, token string) string {
	t.Helper()
	file := l.kubeconfig(name)
	must(t, os.WriteFile(file, fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: lab, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: lab, user: {token: %q}}]
contexts: [{name: lab, context: {cluster: lab, user: lab}}]
current-context: lab
`, apiURL, ca, token), 0o600))
	return file
}

func (l *lab) kubeconfig(name string) string { return l.path(name + ".kubeconfig") }
